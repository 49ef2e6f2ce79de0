"""Commands, run as a user runs them but in this process."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from daom.cli import run


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def daom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run a command in this process, under no other settings than its own."""
    for variable in [name for name in os.environ if name.startswith("DAOM_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "160")

    def command(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["daom", *map(str, arguments)])
        code: int = 0
        try:
            run()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        return Done(code, *capsys.readouterr())

    return command
