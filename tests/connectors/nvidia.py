"""A machine with scripted GPUs: pynvml as it is, on a library that answers what a test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 60.0

READ_ON_DEMAND = """
import json, sys
from connectors.nvml import Gpus
gpus = Gpus(*sys.argv[1:])
for _ in sys.stdin:
    readings = [dict(r.values) | {"pids": sorted(r.pids)} for r in gpus.read()]
    print(json.dumps(readings), flush=True)
"""

GPU: Mapping[str, object] = {
    "uuid": "GPU-00000000-aaaa",
    "name": "NVIDIA H200",
    "total": 150_000_000_000,
    "used": 90_000_000_000,
    "free": 59_000_000_000,
    "reserved": 1_000_000_000,
    "utilisation": 87,
    "memory_utilisation": 41,
    "sm_clock": 1_980,
    "mem_clock": 3_201,
    "power": 645_500,
    "power_limit": 700_000,
    "temperature": 61,
    "reasons": 0,
    "ecc_corrected": 4,
    "ecc_uncorrected": 0,
    "replays": 2,
    "xids": ",",
    "processes": "4242:88000000000,4243:500000000",
}
OTHER = {**GPU, "uuid": "GPU-11111111-bbbb", "processes": "4343:1000"}


@cache
def _compiled(directory: Path) -> Path:
    library = directory / LIBRARY
    command = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE]
    subprocess.run(command, check=True)
    return library


class Machine:
    """A machine whose GPUs answer what it is told, also while somebody reads them."""

    def __init__(self, directory: Path, compiled_in: Path) -> None:
        self._script = directory / "nvml.txt"
        self._library = _compiled(compiled_in)
        self._path = directory / "lib"
        self.settings: dict[str, str] = {}
        self._path.mkdir()

    def has(self, *gpus: Mapping[str, object]) -> Self:
        """Let these be its GPUs from now on."""
        lines = [f"count {len(gpus)}"]
        lines += [
            f"{n}.{name} {value}" for n, gpu in enumerate(gpus) for name, value in gpu.items()
        ]
        draft = self._script.with_suffix(".new")
        draft.write_text("\n".join(lines) + "\n", "utf-8")
        # At once: a reader sees the GPUs as they were or as they are.
        draft.replace(self._script)
        self.install_driver()
        return self

    def install_driver(self) -> None:
        link = self._path / LIBRARY
        if not link.exists():
            link.symlink_to(self._library)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process on it."""
        own = {"LD_LIBRARY_PATH": str(self._path), "FAKE_NVML": str(self._script)}
        others = {n: v for n, v in os.environ.items() if not n.startswith("DAOM_")}
        more = {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "120", "OPENBLAS_NUM_THREADS": "1"}
        return {**others, **own, **more, **self.settings}

    def reader(self, *choice: str) -> Reader:
        """Start to read its GPUs."""
        return Reader(self.environment, choice)

    def read(self, *choice: str) -> list[dict[str, Any]]:
        """Read them once."""
        with self.reader(*choice) as reader:
            return reader.read()

    def daom(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on it to its end."""
        return subprocess.run(
            [sys.executable, "-m", "daom", *arguments],
            env=self.environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=WITHIN_S,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command on it; what it says goes to ``stderr``."""
        command = [sys.executable, "-m", "daom", *arguments]
        return subprocess.Popen(
            command, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


class Reader:
    """A process that has opened NVML, and reads when it is asked."""

    def __init__(self, environment: Mapping[str, str], choice: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READ_ON_DEMAND, *choice],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=WITHIN_S)

    def read(self) -> list[dict[str, Any]]:
        """Return one reading: what each GPU says, and the pids on it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        readings: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return readings
