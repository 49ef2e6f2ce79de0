"""The plugin reads the GPUs of its engines, with what vLLM brings for it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from connectors.vllm_gpus import gpus_an_engine
from tests.connectors.nvidia import GPU, OTHER, Machine
from tests.connectors.test_vllm_probe import configured

# What vLLM's environment looks like: no nvidia-ml-py, but vLLM's own copy of its module.
AS_IN_VLLM = """
import sys
from types import ModuleType
import pynvml
sys.modules.update({name: ModuleType(name) for name in ("vllm", "vllm.third_party")})
sys.modules["vllm.third_party.pynvml"], sys.modules["pynvml"] = pynvml, None
"""
COLLECT = """
import json, os
from types import SimpleNamespace
from connectors import vllm_gpus
from connectors.probe_settings import read_probe_settings
from connectors.vllm_probe import Probe
from daom.events import GpuSample
parallel = SimpleNamespace(tensor_parallel_size=1, data_parallel_size=2)
config = SimpleNamespace(parallel_config=parallel)
named = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "DAOM_PROBE__ENGINE": "blue"}
probe = Probe(read_probe_settings(os.environ | named), config, [0, 1], "0.32.0")
samples = [(key, r) for key, r in probe.collect() if isinstance(r, GpuSample)]
again = [r for _, r in probe.collect() if isinstance(r, GpuSample)]
found = [(key, r.source.engine, [dict(gpu) for gpu in r.gpus]) for key, r in samples]
print(json.dumps([found, len(again)]))
"""


def collected(machine: Machine, before: str = "") -> tuple[list[Any], int]:
    """What two collections say of the GPUs: the first in full, of the second how much."""
    done = subprocess.run(
        [sys.executable, "-c", before + COLLECT],
        env=machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found, again = json.loads(done.stdout)
    return found, again


@pytest.mark.parametrize("before", ["", AS_IN_VLLM], ids=["nvidia-ml-py", "vLLM's own copy"])
def test_each_engine_reports_its_own_gpu_once_a_second(machine: Machine, before: str) -> None:
    found, again = collected(machine.has(GPU, OTHER), before)

    assert [(key, engine, [gpu["uuid"] for gpu in gpus]) for key, engine, gpus in found] == [
        ("unknown", "blue/0", [GPU["uuid"]]),
        ("unknown", "blue/1", [OTHER["uuid"]]),
    ]
    assert found[0][2][0]["sm_clock_mhz"] == 1_980
    assert again == 0


def test_an_engine_has_the_product_of_its_parallel_sizes() -> None:
    config = configured()
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.pipeline_parallel_size = 4, 2
    parallel.prefill_context_parallel_size, parallel.decode_context_parallel_size = 2, 4

    assert gpus_an_engine(config) == 16
    assert gpus_an_engine(None) == 1
