"""What must hold of every message, however broken."""

from __future__ import annotations

import math
from collections import Counter

from daom.cell import CellSettings
from daom.codec import encode_output
from daom.fold import Fold
from tests.daom.stories import plain_floats


class Survivor:
    """A fold that is sent anything, and what became of it.

    Attributes:
        counts: ``used``, ``outputs``, and what was refused, by kind.
    """

    def __init__(self, settings: CellSettings) -> None:
        self.counts = Counter[str]()
        self._fold = Fold(settings)

    def take(self, value: bytes) -> None:
        """Fold ``value`` in; raise what goes wrong, and which message it was."""
        try:
            folded = self._fold.take(value, None)
            assert folded.record is not None or folded.faults, "neither used nor refused"
            assert all(fault.kind and str(fault) for fault in folded.faults), "without a reason"
            for output in folded.outputs:
                encode_output(output)
                assert all(map(math.isfinite, plain_floats(output))), "a number that is none"
        except Exception as error:
            error.add_note(f"the message was {value!r}")
            raise
        self.counts["used"] += folded.record is not None
        self.counts["outputs"] += len(folded.outputs)
        self.counts.update(fault.kind for fault in folded.faults)
