"""What a worker compiles before its first record is all that it ever needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, pkgutil
import detectors
from connectors.recordings import read_lines
from daom.config import Config
from daom.demo import demo_recording
from daom.fold import Fold
from daom.presets import cell_settings
from daom.warm_up import warm_up

names = [module.name for module in pkgutil.iter_modules(detectors.__path__)]
modules = [importlib.import_module(f"detectors.{name}") for name in names]
formulas = {
    f"{m.__name__}.{name}": value
    for m in modules for name, value in vars(m).items() if hasattr(value, "signatures")
}

def compiled():
    return {name: set(map(str, formula.signatures)) for name, formula in formulas.items()}

settings = cell_settings(Config())
warm_up(settings)
before = compiled()
fold = Fold(settings)
for line in read_lines(demo_recording()):
    fold.take(line.value, None)
assert any(before.values())
print(*sorted(name for name, kinds in compiled().items() if kinds - before[name]))
"""


@pytest.mark.slow
def test_nothing_is_left_to_be_compiled_while_records_wait():
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )

    assert found.stdout.split() == []
