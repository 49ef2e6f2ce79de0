"""Records without the names in them, so that they can be shown to others and judged all the same.

Every name becomes a keyed digest of itself: the same name the same word everywhere, so that an
engine's records stay together, a GPU stays its engine's, and a cell its model's. Numbers, times and
the words that DAOM understands stay. Names of columns and gauges stay too: settings refer to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from daom.codec import decode, encode_json
from daom.errors import MalformedRecord
from daom.events import ChangeEvent, GpuSample, Record, Source, Table, TelemetryBatch
from daom.gpu_readings import is_understood
from daom.limits import DEFAULT_LIMITS, Limits
from daom.logged import filed_under
from daom.replay import Sourced

_DIGEST_BYTES: Final = 6
"""Of a few thousand names two are alike once in a hundred million recordings."""
_KEPT_TEXT: Final = frozenset({"finish_reason"})
"""Columns of words that say how a request ended, not whose it was."""


class Anonymiser:
    """Renames what is in records.

    Args:
        salt: The key of the digests: the same gives the same names; without it they cannot be
            found out by trying.
    """

    def __init__(self, salt: bytes) -> None:
        # BLAKE2 takes a key of 64 bytes at most; a salt may be longer.
        self._key = hashlib.blake2b(salt).digest()

    def name(self, kind: str, word: str) -> str:
        """Return what ``word`` is called from now on; ``kind`` says what it is a name of."""
        digest = hashlib.blake2b(
            f"{kind}\x1f{word}".encode(errors="surrogatepass"),
            digest_size=_DIGEST_BYTES,
            key=self._key,
        )
        return f"{kind}-{digest.hexdigest()}"

    def line_of(
        self, sourced: Sourced, max_bytes: int, limits: Limits = DEFAULT_LIMITS
    ) -> bytes | None:
        """Return the line of a recording that says what ``sourced`` does, under other names.

        None where nothing of it can be used. Values that cannot be used are left out.
        """
        try:
            record = decode(
                sourced.value, logged_s=sourced.logged_s, max_bytes=max_bytes, limits=limits
            ).record
        except MalformedRecord:
            return None
        return encode_json(self.record(filed_under(record, sourced.key)))

    def record(self, record: Record) -> Record:
        """Return ``record`` under other names."""
        source = self._source(record.source)
        match record:
            case TelemetryBatch():
                return msgspec.structs.replace(
                    record,
                    source=source,
                    requests=self._table(record.requests),
                    steps=self._table(record.steps),
                )
            case GpuSample():
                gpus = tuple(self._gpu(gpu) for gpu in record.gpus)
                return msgspec.structs.replace(record, source=source, gpus=gpus)
            case ChangeEvent():
                return msgspec.structs.replace(
                    record,
                    source=source,
                    version=self._maybe("version", record.version),
                    detail=self._maybe("detail", record.detail),
                )
            case _:
                return msgspec.structs.replace(record, source=source)

    def _source(self, source: Source) -> Source:
        model = self.name("model", source.model)
        # An engine without a name is known by its model's: who names it so means it.
        engine = model if source.engine == source.model else self._maybe("engine", source.engine)
        return Source(
            model=model,
            engine=engine,
            version=self._maybe("version", source.version),
            boot=self._maybe("boot", source.boot),
            frontend=self._maybe("frontend", source.frontend),
            seq=source.seq,
            tenant=self._maybe("tenant", source.tenant),
            lora=self._maybe("lora", source.lora),
            region=self._maybe("region", source.region),
            host=self._maybe("host", source.host),
            cell=self._cell(source.cell, source.model, model),
        )

    def _cell(self, cell: str | None, model: str, renamed: str) -> str | None:
        """Return the cell: of the model it keeps its number, another one stays another one."""
        if cell is None:
            return None
        if cell == model:
            return renamed
        prefix, _, number = cell.rpartition("/")
        if prefix == model and number.isdecimal():
            return f"{renamed}/{number}"
        return self.name("cell", cell)

    def _maybe(self, kind: str, word: str | None) -> str | None:
        # Empty is no name, and is heeded as none.
        return self.name(kind, word) if word else word

    def _table(self, table: Table) -> Table:
        text = {
            column: values
            if column in _KEPT_TEXT
            else [None if value is None else self.name(column, value) for value in values]
            for column, values in table.text.items()
        }
        return msgspec.structs.replace(table, text=text)

    def _gpu(self, gpu: Mapping[str, float | str]) -> dict[str, float | str]:
        rename: Callable[[str, str], str] = self.name
        return {
            name: value
            if not isinstance(value, str) or is_understood(name)
            else rename("gpu" if name == "uuid" else "word", value)
            for name, value in gpu.items()
        }
