"""Which engine runs on which GPU: what the agent on a host sends of its readings, and to whom.

An engine is named by the one who starts the agent, or by the environment of the processes that
NVML sees on a GPU; else a reading is of all the engines of the model on this host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from connectors.nvml import GpuReading
from daom.events import GpuSample, Source, cell_of

MODEL_VARIABLE: Final = "DAOM_PROBE__MODEL"
ENGINE_VARIABLE: Final = "DAOM_PROBE__ENGINE"

_PROC: Final = Path("/proc")
_ANCESTORS: Final = 8
_PARENT: Final = re.compile(r"^PPid:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Host:
    """What the agent was told.

    Attributes:
        name: The host's, as the engines report it.
        model: The model of processes that name none, and of a host on which none is named.
        engine: The one engine that all readings are of.
        cells: A model is cut into so many, by its engines' names.
    """

    name: str
    model: str | None = None
    engine: str | None = None
    cells: int = 1

    def samples(self, readings: Sequence[GpuReading], time_s: float) -> list[tuple[str, GpuSample]]:
        """Return a sample for each engine on the GPUs, with the key of its cell."""
        return [
            (key, GpuSample(source=source, time_s=time_s, gpus=gpus))
            for source, gpus in self._gpus_of(readings).items()
            for key in self._keys(source)
            if gpus
        ]

    def _keys(self, source: Source) -> list[str]:
        """Return the cell of an engine; what is of all on the host may concern any cell."""
        if source.engine is None and self.cells > 1:
            return [f"{source.model}/{number}" for number in range(self.cells)]
        return [cell_of(source, self.cells)]

    def _gpus_of(
        self, readings: Sequence[GpuReading]
    ) -> dict[Source, tuple[Mapping[str, float | str], ...]]:
        every = tuple(reading.values for reading in readings)
        if self.model is not None and self.engine is not None:
            return {self._source(self.model, self.engine): every}
        pids = {pid for reading in readings for pid in reading.pids}
        named = {pid: source for pid in sorted(pids) if (source := self._source_of(pid))}
        if named:
            return {
                source: tuple(_of_processes(readings, [p for p, s in named.items() if s == source]))
                for source in dict.fromkeys(named.values())
            }
        return {} if self.model is None else {self._source(self.model, None): every}

    def _source_of(self, pid: int) -> Source | None:
        said = said_by_process(pid)
        model = said.get(MODEL_VARIABLE, self.model)
        return self._source(model, said.get(ENGINE_VARIABLE)) if said and model else None

    def _source(self, model: str, engine: str | None) -> Source:
        return Source(model=model, engine=engine, host=self.name)


def _of_processes(
    readings: Sequence[GpuReading], pids: Iterable[int]
) -> Iterator[Mapping[str, float | str]]:
    """Yield what the processes use: GPUs, MIG devices, and the GPUs that these are parts of."""
    used = [reading for reading in readings if reading.pids.intersection(pids)]
    uuids = {str(r.values.get("parent_uuid", r.uuid)) for r in used} | {r.uuid for r in used}
    return (reading.values for reading in readings if reading.uuid in uuids)


def said_by_process(pid: int) -> dict[str, str]:
    """Return the model and engine that the environment of a process names, or of its parents.

    A process that gives itself a title writes it over its environment, and vLLM's do. They have
    theirs from the one that started them, which has kept it.
    """
    for _ in range(_ANCESTORS):
        try:
            variables = (_PROC / str(pid) / "environ").read_bytes().decode("utf-8", "replace")
            status = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
        except OSError:  # It has ended, or is another user's.
            return {}
        pairs = (variable.partition("=") for variable in variables.split("\0"))
        said = {n: word for n, _, word in pairs if n in {MODEL_VARIABLE, ENGINE_VARIABLE} and word}
        parent = _PARENT.search(status)
        if said or parent is None or parent[1] == "0":
            return said
        pid = int(parent[1])
    return {}
