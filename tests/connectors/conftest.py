"""Machines with scripted GPUs."""

from pathlib import Path

import pytest

from tests.connectors.nvidia import Machine
from tests.programs import require_program


@pytest.fixture(scope="session")
def compiled_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library that stands in for NVIDIA's is compiled, once."""
    require_program("gcc", "which compiles the library that stands in for NVIDIA's")
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture
def machine(tmp_path: Path, compiled_in: Path) -> Machine:
    """A machine without a driver, until it ``has`` GPUs."""
    return Machine(tmp_path, compiled_in)
