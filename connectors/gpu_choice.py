"""Which of the GPUs that are there are meant by a text such as CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daom.errors import ConfigError

ALL: Final = "all"
_END: Final = "-1"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen.

    Attributes:
        whole: Indexes of the GPUs that are meant with all their MIG devices.
        migs: The MIG devices that are meant by themselves, each with the index of its GPU.
        missing: UUIDs that nobody has, while a GPU does not answer: it may be theirs.
    """

    whole: frozenset[int]
    migs: Mapping[str, int]
    missing: tuple[str, ...] = ()

    def has_gpu(self, index: int) -> bool:
        """Return whether the GPU, or a MIG device of it, is meant."""
        return index in self.whole or index in self.migs.values()

    def has_mig(self, index: int, uuid: str) -> bool:
        """Return whether the MIG device ``uuid`` of the GPU ``index`` is meant."""
        return index in self.whole or uuid in self.migs


def chosen_gpus(text: str | None, gpus: Sequence[tuple[str, Sequence[str]]]) -> Choice:
    """Return which of ``gpus`` are meant by ``text``.

    Args:
        text: Indexes, UUIDs or the beginnings of UUIDs, with commas between; None is all of them.
            What comes after a -1 is ignored, as CUDA does.
        gpus: Of each GPU its UUID, empty if it does not answer, and those of its MIG devices.

    Raises:
        ConfigError: If something is named that is not there, or that could be several.

    >>> two = [("GPU-a", []), ("GPU-b", ["MIG-c", "MIG-d"])]
    >>> sorted(chosen_gpus("0,GPU-b", two).whole)
    [0, 1]
    >>> chosen_gpus("MIG-d", two).migs
    {'MIG-d': 1}
    """
    indexes = {str(index): index for index in range(len(gpus))}
    if text is None or text.strip() == ALL:
        return Choice(frozenset(indexes.values()), {})
    uuids = {uuid: index for index, (uuid, _) in enumerate(gpus) if uuid}
    parents = {mig: index for index, (_, migs) in enumerate(gpus) for mig in migs}
    whole: set[int] = set()
    migs: dict[str, int] = {}
    missing: list[str] = []
    for word in _words(text):
        known = [uuid for uuid in (*uuids, *parents) if uuid.lower().startswith(word.lower())]
        if word in indexes:
            whole.add(indexes[word])
        elif len(known) == 1 and known[0] in uuids:
            whole.add(uuids[known[0]])
        elif len(known) == 1:
            migs[known[0]] = parents[known[0]]
        elif not known and not word.isdecimal() and len(uuids) < len(gpus):
            missing.append(word)
        else:
            why = "could be several of" if known else "is none of"
            there = ", ".join((*indexes, *uuids, *parents))
            raise ConfigError(f"GPUs: got {word!r}, which {why} those that are here: {there}")
    return Choice(frozenset(whole), migs, tuple(missing))


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    words = words[: words.index(_END)] if _END in words else words
    if not words:
        raise ConfigError(f"GPUs: got {text!r}; indexes or UUIDs with commas between are needed")
    return words
