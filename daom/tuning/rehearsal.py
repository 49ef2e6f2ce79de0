"""One replay, many settings: what each of them would have said.

The settings of a replay differ in how alerts live alone. Every record is decoded, and every series
judged, once for all of them; conditions, lifecycle and suppression are each setting's own. What is
said under a setting is what ``daom replay`` would say under it, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from daom.config import Config
from daom.events import DriftVerdict, Output
from daom.fold import Fold
from daom.heard import Heard
from daom.presets import cell_settings
from daom.replay import Sourced
from daom.tuning.candidates import judging_of


def rehearse(values: Iterable[Sourced], configs: Sequence[Config]) -> Iterator[list[list[Output]]]:
    """Yield what each value makes due under each of ``configs``, in their order.

    Args:
        values: A partition or a recording, in log order.
        configs: One or more, which judge alike.

    Raises:
        ValueError: If they do not judge alike.
    """
    first, *rest = configs
    if any(judging_of(config) != judging_of(first) for config in rest):
        raise ValueError("configurations that judge differently cannot share a replay")
    others = [cell_settings(config) for config in rest]
    fold = Fold(cell_settings(first), first.worker.max_message_bytes, others=others)
    for sourced in values:
        folded = fold.take(sourced.value, sourced.key, sourced.logged_s)
        if folded.outputs or any(folded.others):
            yield [list(folded.outputs), *map(list, folded.others)]


def listen(parts: Iterable[Iterable[Sourced]], configs: Sequence[Config]) -> list[Heard]:
    """Return what was heard of a source, whose parts are folded each by itself.

    What was said of the series is the same for all, and is noted once.
    """
    heard = [Heard() for _ in configs]
    for part in parts:
        for said in rehearse(part, configs):
            for output in said[0]:
                heard[0].note(output)
            for each, outputs in zip(heard[1:], said[1:], strict=True):
                for output in outputs:
                    if not isinstance(output, DriftVerdict):
                        each.note(output)
    for each in heard[1:]:
        each.series = heard[0].series
    return heard
