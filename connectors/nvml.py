"""GPU readings through NVML: one mapping of numbers and words for each GPU.

A reading is some twenty calls for each GPU, makes no CUDA context and takes no memory on the GPU:
once a second beside an engine is cheap. What a GPU does not support is left out, and so is what
cannot be: after some faults NVML answers 0 for a clock or a temperature. A GPU that is lost says
``lost: 1`` and stops nobody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from connectors.fragmentation import fragmentation_by_uuid
from connectors.gpu_choice import Choice, chosen_gpus
from daom.errors import GpusUnavailable, MissingExtra
from daom.gpu_readings import NEVER_ZERO

Values = Mapping[str, float | str]

_VLLMS_COPY: Final = "vllm.third_party.pynvml"
"""vLLM brings pynvml as a module of its own."""
_MOST_EVENTS: Final = 64
"""Xids taken a reading: one that comes without end must not hold up the rest."""
_XID_EVENT: Final = 0x8
_MIG_ON: Final = 1
_NOT_AVAILABLE: Final = frozenset({2**32 - 1, 2**64 - 1})
_MEMORY_PARTS: Final = ("total", "used", "free", "reserved")
_NEVER_ZERO: Final = NEVER_ZERO | {"power_limit_w"}
_BLIND_IF_ZERO: Final = ("sm_clock_mhz", "temperature_c")


@dataclass(frozen=True, slots=True)
class _Query:
    """A number of a GPU: the functions of NVML that tell it, the newest first."""

    name: str
    functions: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    unit: float | None = None


_QUERIES: Final = (
    _Query("sm_clock_mhz", ("nvmlDeviceGetClockInfo",), (1,)),
    _Query("mem_clock_mhz", ("nvmlDeviceGetClockInfo",), (2,)),
    _Query("power_w", ("nvmlDeviceGetPowerUsage",), unit=1e-3),
    _Query(
        "power_limit_w",
        ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
        unit=1e-3,
    ),
    _Query("temperature_c", ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), (0,)),
    _Query(
        "clocks_event_reasons",
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    # Volatile counters: since the driver was loaded.
    _Query("ecc_corrected_total", ("nvmlDeviceGetTotalEccErrors",), (0, 0)),
    _Query("ecc_uncorrected_total", ("nvmlDeviceGetTotalEccErrors",), (1, 0)),
    _Query("pcie_replays_total", ("nvmlDeviceGetPcieReplayCounter",)),
)

# Fields of nvmlDeviceGetFieldValues, each with its link. Totals of all links: CRC of flits and of
# data, replays, recoveries, ECC. Newer GPUs have replays, recoveries and CRC for each link instead.
_NVLINK_TOTALS: Final = tuple((number, 0) for number in (38, 45, 52, 59, 160))
_NVLINK_LINKS: Final = tuple((number, link) for link in range(18) for number in (161, 162, 163))
_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one GPU or MIG device says, and which processes use it."""

    values: Values
    pids: frozenset[int] = frozenset()

    @property
    def uuid(self) -> str:
        """Its UUID; empty for a GPU that was lost before anybody asked."""
        return str(self.values.get("uuid", ""))


@dataclass(slots=True)
class _Device:
    """A GPU that is being watched.

    Attributes:
        handle: NVML's; None until it could be had.
        events: An event set of its own, so that an event needs no telling whose it is.
        xid: The newest Xid since the start, 0 before the first; None where none are reported.
        nvlink: The fields that this GPU answers; None until it was asked.
        pids: Who used it when it was last asked: of a lost GPU nobody can tell.
    """

    index: int
    handle: Any = None
    uuid: str = ""
    name: str = ""
    events: Any = None
    xid: int | None = None
    xids: int = 0
    nvlink: tuple[tuple[int, int], ...] | None = None
    pids: frozenset[int] = frozenset()

    @property
    def identity(self) -> dict[str, float | str]:
        # The index is a name, not a quantity: as a word nobody takes its mean.
        known = {"uuid": self.uuid, "name": self.name, "index": str(self.index)}
        return {name: word for name, word in known.items() if word}


class _Lost(Exception):  # noqa: N818 - it says what the GPU is.
    """The GPU does not answer any more."""


def _pynvml() -> ModuleType:
    try:
        return importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        if "vllm" in sys.modules:  # Never to be imported for this: it takes seconds.
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(_VLLMS_COPY)
        raise MissingExtra(
            "reading GPUs needs pynvml, which is not installed: pip install 'daom[gpu]'"
        ) from error


class _Nvml:
    """NVML, where a question that is not answered is None.

    Raises:
        MissingExtra: If pynvml is not installed.
        GpusUnavailable: If there is no driver to talk to.
    """

    def __init__(self) -> None:
        self.module = _pynvml()
        try:
            self.module.nvmlInit()
        except self.module.NVMLError as error:
            raise GpusUnavailable(f"there is no NVIDIA driver to ask: {error}") from error

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return NVML's answer; None if it has none.

        Raises:
            _Lost: If the GPU is lost.
        """
        call = getattr(self.module, function, None)
        if call is None:  # An older pynvml.
            return None
        try:
            return call(*arguments)
        except self.module.NVMLError as error:
            if error.value == self.module.NVML_ERROR_GPU_IS_LOST:
                raise _Lost from error
        except (self.module.NVMLLibraryMismatchError, UnicodeDecodeError):
            pass  # A newer pynvml than driver; a name that is none.
        return None

    def number(self, functions: Sequence[str], *arguments: Any) -> float | None:
        """Return the first number that one of ``functions`` tells."""
        for function in functions:
            answer = self.ask(function, *arguments)
            if answer is not None and answer not in _NOT_AVAILABLE:
                return float(answer) if isinstance(answer, float) else int(answer)
        return None

    def vgpu_bytes(self, vgpu: int) -> int | None:
        """Return the memory that a vGPU uses; pynvml itself would keep 32 bits of it."""
        size = ctypes.c_ulonglong()
        call = getattr(self.module.nvmlLib, "nvmlVgpuInstanceGetFbUsage", None)
        if call is None or call(ctypes.c_uint(vgpu), ctypes.byref(size)):
            return None
        return size.value


class Gpus:
    """The GPUs of this host that were chosen; all of them by default.

    Args:
        choice: Which, as ``CUDA_VISIBLE_DEVICES`` has it: indexes, UUIDs of GPUs or MIG devices.

    Raises:
        MissingExtra: If pynvml is not installed.
        GpusUnavailable: If there is no driver, or no GPU.
        ConfigError: If ``choice`` names what is not there.
    """

    def __init__(self, choice: str | None = None) -> None:
        self._nvml = _Nvml()
        count = self._nvml.ask("nvmlDeviceGetCount") or 0
        devices = [_Device(index) for index in range(count)]
        if not devices:
            self.close()
            raise GpusUnavailable("the NVIDIA driver sees no GPU")
        self._chosen: Choice = chosen_gpus(choice, [self._names(device) for device in devices])
        self._devices = [device for device in devices if self._chosen.has_gpu(device.index)]

    def __len__(self) -> int:
        return len(self._devices) + len(self._chosen.missing)

    def read(self) -> list[GpuReading]:
        """Return what the GPUs say now, each followed by its MIG devices; it never raises."""
        ratios = fragmentation_by_uuid()
        found = [reading for device in self._devices for reading in self._read(device, ratios)]
        missing = [GpuReading({"uuid": uuid, "lost": 1}) for uuid in self._chosen.missing]
        return found + missing

    def close(self) -> None:
        """Let NVML go."""
        with contextlib.suppress(self._nvml.module.NVMLError):
            self._nvml.module.nvmlShutdown()

    def _names(self, device: _Device) -> tuple[str, list[str]]:
        """Return the UUID of a GPU and those of its MIG devices; empty if it does not answer."""
        try:
            if not self._open(device):
                return "", []
            migs = [str(self._nvml.ask("nvmlDeviceGetUUID", mig)) for mig in self._migs(device)]
        except _Lost:
            return device.uuid, []
        return device.uuid, migs

    def _open(self, device: _Device) -> bool:
        """Return whether the GPU may be asked; begin to listen for its Xids."""
        if device.handle is not None:
            return True
        handle = self._nvml.ask("nvmlDeviceGetHandleByIndex", device.index)
        if handle is None:
            return False
        device.uuid = self._nvml.ask("nvmlDeviceGetUUID", handle) or ""
        device.name = self._nvml.ask("nvmlDeviceGetName", handle) or ""
        kinds = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
        device.handle = handle
        events = self._nvml.ask("nvmlEventSetCreate") if kinds & _XID_EVENT else None
        if events is not None:
            with contextlib.suppress(self._nvml.module.NVMLError):
                self._nvml.module.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
                device.events, device.xid = events, 0
        return True

    def _read(self, device: _Device, ratios: Mapping[str, float]) -> Iterator[GpuReading]:
        try:
            if not self._open(device):
                return
            values = device.identity | {"lost": 0} | self._own(device)
            own = self._with_processes(device.handle, values)
            device.pids = own.pids
            readings = [own]
            readings += [self._mig(device, n, mig) for n, mig in enumerate(self._migs(device))]
        except _Lost:
            # Its last Xid says why.
            values = device.identity | {"lost": 1} | self._xids(device)
            readings = [GpuReading(values, device.pids)]
        for reading in readings:
            is_mig = "parent_uuid" in reading.values
            if is_mig and not self._chosen.has_mig(device.index, reading.uuid):
                continue
            ratio = ratios.get(reading.uuid)
            more = {} if ratio is None else {"fragmentation_ratio": ratio}
            yield GpuReading({**reading.values, **more}, reading.pids)

    def _own(self, device: _Device) -> dict[str, float | str]:
        """Return the quantities of a GPU itself."""
        handle, numbers = device.handle, dict[str, float]()
        for query in _QUERIES:
            number = self._nvml.number(query.functions, handle, *query.arguments)
            if number is not None:
                numbers[query.name] = number * query.unit if query.unit else number
        numbers |= self._memory(handle) | self._utilisation(handle) | self._vgpus(handle)
        errors = self._nvlink_errors(device)
        if errors is not None:
            numbers["nvlink_errors_total"] = errors
        return {**believed(numbers), **self._xids(device)}

    def _memory(self, handle: Any) -> dict[str, float]:
        version = getattr(self._nvml.module, "nvmlMemory_v2", None)
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", handle, version)
        memory = memory or self._nvml.ask("nvmlDeviceGetMemoryInfo", handle)
        if memory is None or memory.total in _NOT_AVAILABLE | {0}:
            return {}
        sizes = {part: getattr(memory, part, None) for part in _MEMORY_PARTS}
        return {f"memory_{part}_bytes": size for part, size in sizes.items() if size is not None}

    def _utilisation(self, handle: Any) -> dict[str, float]:
        shares = self._nvml.ask("nvmlDeviceGetUtilizationRates", handle)
        if shares is None:
            return {}
        return {"utilisation": shares.gpu / 100.0, "memory_utilisation": shares.memory / 100.0}

    def _vgpus(self, handle: Any) -> dict[str, float]:
        vgpus = self._nvml.ask("nvmlDeviceGetActiveVgpus", handle)
        if not vgpus:
            return {}
        used = [size for vgpu in vgpus if (size := self._nvml.vgpu_bytes(vgpu)) is not None]
        known: dict[str, float] = {"vgpu_memory_used_bytes": sum(used)} if used else {}
        return {"vgpus": len(vgpus), **known}

    def _xids(self, device: _Device) -> dict[str, float | str]:
        """Return the newest Xid since the start and how many there were."""
        for _ in range(_MOST_EVENTS if device.events is not None else 0):
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", device.events, 0)
            except _Lost:
                break
            if event is None:
                break
            if event.eventType & _XID_EVENT:
                device.xid, device.xids = int(event.eventData), device.xids + 1
        if device.xid is None:
            return {}
        return {"xid": device.xid, "xid_total": device.xids}

    def _nvlink_errors(self, device: _Device) -> float | None:
        if device.nvlink is None:
            totals = tuple(self._fields(device.handle, _NVLINK_TOTALS))
            device.nvlink = totals or tuple(self._fields(device.handle, _NVLINK_LINKS))
        found = self._fields(device.handle, device.nvlink) if device.nvlink else {}
        return sum(found.values()) if found else None

    def _fields(self, handle: Any, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
        answers = self._nvml.ask("nvmlDeviceGetFieldValues", handle, list(wanted))
        if answers is None:
            return {}
        return {
            field: int(getattr(answer.value, _VALUE_MEMBERS[answer.valueType]))
            for field, answer in zip(wanted, answers, strict=True)
            if answer.nvmlReturn == 0 and answer.valueType < len(_VALUE_MEMBERS)
        }

    def _with_processes(self, handle: Any, values: Values) -> GpuReading:
        """Return the reading of a device: its ``values``, and who computes on it."""
        processes = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is None:
            return GpuReading(values)
        pids = frozenset(int(process.pid) for process in processes)
        sizes = [int(p.usedGpuMemory) for p in processes if p.usedGpuMemory is not None]
        largest = {"process_memory_max_bytes": max(sizes)} if sizes else {}
        return GpuReading({**values, "processes": len(pids), **largest}, pids)

    def _migs(self, device: _Device) -> list[Any]:
        mode = self._nvml.ask("nvmlDeviceGetMigMode", device.handle)
        if mode is None or mode[0] != _MIG_ON:
            return []
        count = self._nvml.ask("nvmlDeviceGetMaxMigDeviceCount", device.handle) or 0
        handles = [
            self._nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, index)
            for index in range(count)
        ]
        return [handle for handle in handles if handle is not None]

    def _mig(self, device: _Device, number: int, handle: Any) -> GpuReading:
        uuid = self._nvml.ask("nvmlDeviceGetUUID", handle) or ""
        identity = {"uuid": uuid, "parent_uuid": device.uuid, "index": f"{device.index}:{number}"}
        return self._with_processes(handle, {**identity, **self._memory(handle)})


def believed(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return what can be: without the zeros that no working GPU has.

    After some faults NVML answers 0 to everything: where the SM clock or the temperature is 0, the
    other zeros are no measurements either.

    >>> believed({"temperature_c": 0, "utilisation": 0.0, "power_w": 90.0})
    {'power_w': 90.0}
    """
    is_blind = any(numbers.get(name) == 0.0 for name in _BLIND_IF_ZERO)
    return {
        name: number
        for name, number in numbers.items()
        if number or not (is_blind or name in _NEVER_ZERO)
    }
