"""A cell's state as bytes: compact, versioned, checked.

``MAGIC``, a version byte, a 16-byte BLAKE2 digest of the rest, and the rest: deflated MessagePack
of the state with the offset that it covers. A checkpoint that is corrupt, or from a version or
configuration that this one cannot read, is an error: starting empty instead would be silent.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from daom.cell import CellSettings, CellState
from daom.door import DoorState
from daom.errors import CheckpointError
from daom.series import SeriesState, SignalSettings

MAGIC: Final = b"DAOM"
VERSION: Final = 6
MARKER_KEY: Final = b"\x00partition"
"""Key of a partition's marker among its cells' checkpoints: no model can have this name."""
_DIGEST_BYTES: Final = 16
_HEADER_BYTES: Final = len(MAGIC) + 1 + _DIGEST_BYTES
_FAST: Final = 1


class Checkpoint(msgspec.Struct, kw_only=True):
    """What one cell had become.

    Attributes:
        offset: The next offset of its partition: everything before it is in ``state``.
        judged_by: How each signal was judged, as far as the state depends on it.
    """

    cell: str
    model: str
    offset: int
    judged_by: dict[str, str]
    state: CellState


class Marker(msgspec.Struct, kw_only=True):
    """How far a partition had come when its cells were last saved.

    Attributes:
        offset: The next offset to fold.
        partitions: Partitions of the telemetry topic then: they decide which cells are here.
        cells: The offset of each cell's newest checkpoint.
        door: What the partition itself had become.
    """

    offset: int
    partitions: int
    cells: dict[str, int]
    door: DoorState = msgspec.field(default_factory=DoorState)


def encode_marker(marker: Marker) -> bytes:
    """Return ``marker`` as JSON, for a person to read too."""
    return msgspec.json.encode(marker)


def decode_marker(value: bytes) -> Marker:
    """Return the marker that ``encode_marker`` wrote.

    Raises:
        CheckpointError: If it is none.
    """
    try:
        return msgspec.json.decode(value, type=Marker)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"not a marker: {error}") from error


def judged_by(settings: CellSettings) -> dict[str, str]:
    """Return how each signal is judged, as far as a state depends on it."""
    return {
        signal.name: f"{signal.detector.kind} over {signal.table}.{signal.column} by "
        f"{signal.workload} and {signal.workload_part}, panes of {settings.pane_s:g} s"
        for signal in settings.signals
    }


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return ``checkpoint`` as bytes."""
    body = zlib.compress(encode_plain(checkpoint), _FAST)
    digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
    return b"".join([MAGIC, bytes([VERSION]), digest, body])


def decode_checkpoint(value: bytes, settings: CellSettings) -> Checkpoint:
    """Return the checkpoint that ``encode_checkpoint`` wrote.

    Raises:
        CheckpointError: If it is corrupt, of another version, or of other detectors.
    """
    header, body = value[:_HEADER_BYTES], value[_HEADER_BYTES:]
    if not header.startswith(MAGIC) or len(header) < _HEADER_BYTES:
        raise CheckpointError("not a checkpoint: it does not begin with DAOM")
    version = header[len(MAGIC)]
    if version != VERSION:
        raise CheckpointError(f"checkpoint version {version}; this one reads version {VERSION}")
    digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
    if header[-_DIGEST_BYTES:] != digest:
        raise CheckpointError("the checkpoint is corrupt: its digest differs")
    try:
        checkpoint = msgspec.msgpack.decode(zlib.decompress(body), type=Checkpoint, dec_hook=_live)
        _revive(checkpoint, settings)
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        raise CheckpointError(f"the checkpoint cannot be read: {error}") from error
    return checkpoint


def encode_plain(state: object) -> bytes:
    """Return a state as MessagePack."""
    return msgspec.msgpack.encode(state, enc_hook=_plain)


def _plain(value: object) -> object:
    """Return what MessagePack can hold in place of ``value``."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    for method in ("snapshot", "to_bytes"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _live(wanted: Any, value: Any) -> object:
    """Return ``value`` as the type that a state asks for."""
    if getattr(wanted, "__origin__", wanted) is np.ndarray:
        dtype, shape, raw = value
        # A copy, since a state's arrays may be written to.
        return np.frombuffer(raw, np.dtype(dtype)).reshape(shape).copy()
    if hasattr(wanted, "from_bytes"):
        return wanted.from_bytes(value)
    raise TypeError(f"a checkpoint cannot restore a {wanted}")


def _revive(checkpoint: Checkpoint, settings: CellSettings) -> None:
    """Turn the plain data of detectors and panes, whose types the settings know, into objects."""
    known = judged_by(settings)
    signals = {signal.name: signal for signal in settings.signals}
    for name, series in _all_series(checkpoint.state):
        written = checkpoint.judged_by.get(name)
        if name in known and written != known[name]:
            raise CheckpointError(
                f"signal {name} was judged by {written}, "
                f"and is now by {known[name]}; a new kafka.topic_prefix begins anew"
            )
        if name in signals:
            _revive_series(series, signals[name])
    for holder in [checkpoint.state.fleet, *(e.series for e in checkpoint.state.engines.values())]:
        for name in holder.keys() - signals.keys():
            del holder[name]


def _all_series(state: CellState) -> Iterator[tuple[str, SeriesState]]:
    yield from state.fleet.items()
    for engine in state.engines.values():
        yield from engine.series.items()


def _revive_series(series: SeriesState, signal: SignalSettings) -> None:
    detector = signal.detector
    series.detector = msgspec.convert(series.detector, detector.state_type, dec_hook=_live)
    for number, snapshot in series.panes.items():
        pane = detector.new_pane()
        pane.restore(msgspec.convert(snapshot, pane.snapshot_type, dec_hook=_live))
        series.panes[number] = pane
