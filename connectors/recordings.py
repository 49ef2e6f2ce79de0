"""Recordings: input records as JSON Lines in log order, plain, gzipped or Zstandard.

A recording may hold several cells. Lines are handed on as bytes, because a line that cannot be
decoded is the codec's to refuse and the caller's to dead-letter. The lower half is what the
converters of foreign logs share: reading their files and bringing streams into one order.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import heapq
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from daom.errors import MissingExtra, SinkError, SourceError
from daom.events import EMPTY_TABLE, Record, Table, TelemetryBatch

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import WriteableBuffer

MAX_LINE_BYTES: Final = 16 * 2**20
"""Four times what the codec takes by default, so that it still refuses a cut line by its size."""
_COMPRESSED_CHUNK_BYTES: Final = 1024
"""Zstandard packs 128 KiB into as little as 4 bytes: small chunks bound what one can unfold to."""


@dataclass(slots=True)
class Position:
    """How far a file has been read, as it lies on disk: packed bytes of a packed one."""

    file: BinaryIO | None = None

    def read_bytes(self) -> int:
        """Return the bytes that have been read; 0 of what has no position, such as a pipe."""
        try:
            return 0 if self.file is None or self.file.closed else self.file.tell()
        except OSError:
            return 0


class Line(NamedTuple):
    """One line of a recording: its number, from 1, and its bytes without the newline."""

    number: int
    value: bytes


def read_lines(
    path: str | os.PathLike[str],
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    position: Position | None = None,
) -> Iterator[Line]:
    """Yield the lines of a recording as they are read; blank lines count but are skipped.

    Args:
        path: The recording; ``.gz`` and ``.zst`` are unpacked, and ``-`` is the standard input.
        max_line_bytes: A longer line is yielded cut to this length, and the rest of it skipped,
            so that memory stays bounded; the codec then refuses it by its size.
        position: Kept at how far the file has been read.

    Raises:
        SourceError: If the recording cannot be opened, is corrupt, or its compressed stream ends
            too early; every whole line before the fault has been yielded. A plain file cannot
            tell that it was cut: its last line is yielded as it is.
        MissingExtra: If it is ``.zst`` and zstandard is not installed.
    """
    name = os.fspath(path)
    number = 0
    try:
        with _open_raw(name) as raw, _unpacked(name, raw) as stream:
            if position is not None:
                position.file = raw
            for line in _cut_lines(stream, max_line_bytes):
                number += 1
                if line.strip():
                    yield Line(number, line)
    except EOFError as error:
        raise SourceError(
            f"{name}: the compressed stream ends too early, after {number} whole lines"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"{name}: corrupt gzip after {number} whole lines: {error}") from error
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from error


def _open_raw(name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    return contextlib.nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _unpacked(name: str, raw: BinaryIO) -> contextlib.AbstractContextManager[BinaryIO]:
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    if name.endswith(".zst"):
        return cast("BinaryIO", io.BufferedReader(_ZstdFile(raw)))
    return contextlib.nullcontext(raw)


def _cut_lines(stream: BinaryIO, max_line_bytes: int) -> Iterator[bytes]:
    with_newline = max_line_bytes + 1
    while line := stream.readline(with_newline):
        rest = line
        while len(rest) == with_newline and not rest.endswith(b"\n"):
            rest = stream.readline(with_newline)
        yield line[:max_line_bytes].removesuffix(b"\n")


class _ZstdFile(io.RawIOBase):
    """A Zstandard file of one or more frames, unpacked.

    The reader that zstandard brings takes a cut file for a whole one, hence this.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        zstandard = _import_zstandard()
        self._error: type[Exception] = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._packed = b""
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._unpacked:
            self._packed = self._packed or self._file.read(_COMPRESSED_CHUNK_BYTES)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError
                return 0
            self._unpack()
        target = memoryview(buffer)
        size = min(len(target), len(self._unpacked))
        target[:size] = self._unpacked[:size]
        self._unpacked = self._unpacked[size:]
        return size

    def _unpack(self) -> None:
        if self._frame is None:
            self._frame = self._decompressor.decompressobj()
        try:
            self._unpacked = memoryview(self._frame.decompress(self._packed))
        except self._error as error:
            raise OSError(f"corrupt Zstandard: {error}") from error
        self._packed = b""
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None

    def close(self) -> None:
        self._file.close()
        super().close()


def _import_zstandard() -> ModuleType:
    try:
        import zstandard  # noqa: PLC0415 - optional: only .zst recordings need it.
    except ImportError as error:
        raise MissingExtra("a .zst recording needs zstandard: pip install 'daom[cli]'") from error
    return zstandard


def write_recording(path: str | os.PathLike[str], values: Iterable[bytes]) -> int:
    """Write ``values``, one a line, as one recording; return how many there were.

    The same values give the same bytes, also in ``.gz``. The file appears under its name once
    it is whole; until then it is a hidden ``.part`` beside it, so a crash leaves no half file.

    Args:
        path: Where to write; ``.gz`` and ``.zst`` are packed.
        values: Encoded records, such as ``daom.codec.encode_json`` returns.

    Raises:
        SinkError: If it cannot be written.
        MissingExtra: If ``path`` is ``.zst`` and zstandard is not installed.
        ValueError: If a value is blank or has a newline in it, and so is no line.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            with _packer(file, path.suffix) as stream:
                count = _write_lines(stream, values)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise SinkError(f"{path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return count


def _packer(file: BinaryIO, suffix: str) -> contextlib.AbstractContextManager[BinaryIO]:
    if suffix == ".gz":
        # No name and no time in the header: they would differ from run to run.
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0)
        return cast("BinaryIO", packed)
    if suffix == ".zst":
        compressor = _import_zstandard().ZstdCompressor(level=9)
        return cast("BinaryIO", compressor.stream_writer(file, closefd=False))
    return contextlib.nullcontext(file)


def _write_lines(stream: BinaryIO, values: Iterable[bytes]) -> int:
    count = 0
    for value in values:
        if b"\n" in value or not value.strip():
            raise ValueError(f"got {value!r:.80}; a line is neither blank nor broken by a newline")
        stream.write(value + b"\n")
        count += 1
    return count


def record_time_s(record: Record) -> float:
    """Return when ``record`` was complete, event time in Unix seconds."""
    return record.end_s if isinstance(record, TelemetryBatch) else record.time_s


def merge_by_time(streams: Iterable[Iterable[Record]]) -> Iterator[Record]:
    """Yield the records of several streams in time order, each being in time order itself.

    At equal times, the records of an earlier stream come first.
    """
    return heapq.merge(*streams, key=record_time_s)


def rows_between(table: Table, start: int, stop: int) -> Table:
    """Return the rows ``start`` to ``stop - 1`` of a table of numbers."""
    if start >= stop:
        return EMPTY_TABLE
    columns = {name: values[start:stop] for name, values in table.columns.items()}
    return Table(end_s=table.end_s[start:stop], columns=columns)


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        SourceError: If it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SourceError(f"{path}: not JSON: {error}") from error


def read_csv(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a CSV file of numbers with a header, shape ``(rows,)`` each.

    Raises:
        SourceError: If it cannot be read, or a cell of it is not a number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        return dict(zip(header, np.array(rows, np.float64).T, strict=True))
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SourceError(f"{path}: not a CSV of numbers with a header: {error}") from error
