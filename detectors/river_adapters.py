"""River's ADWIN, KSWIN and Page-Hinkley behind the protocol of every detector.

They take values one by one and say when they fire; they know no workload, no size of a change and
no direction. They are here to be compared with, and for whoever trusts them already.

Values are passed on as ``log(value)``, clipped to the histogram's range. ADWIN's bound and
Page-Hinkley's ``delta`` and ``threshold`` assume values of unit scale, so on seconds they depend on
the unit; on logarithms a change of 20 % is the same for 20 ms and for 10 s. Measured with river's
defaults on independent lognormal samples, sigma 0.5, median 0.02 s / 0.3 s / 10 s: false alarms,
and the median delay in samples of ten runs (KSWIN: four) to +20 % and to +50 % ("never": not within
3,000).

    ADWIN         seconds  false 0 / 0 / 0 in 200,000      +20 %: never / 431 / 175
                                                           +50 %: 1,103 / 111 / 47
                  log      false 0 in 200,000              +20 %: 207    +50 %: 79
    Page-Hinkley  seconds  false 0 / 0 / 3,632 in 200,000  +20 %: never / 1,053 / 15
                                                           +50 %: never / 340 / 10
                  log      false 20 in 200,000             +20 %: 228    +50 %: 108
    KSWIN         either   false 14 in 16,000              +20 %: 345    +50 %: 29

(KSWIN compares ranks, which a logarithm keeps; Page-Hinkley's 15 and 10 are its false alarms.)

Cost of a value: ADWIN 1, Page-Hinkley 1.5, KSWIN 300 microseconds; of a pane 60 more; a checkpoint
carries 0.4 kB to 5 kB a series, and 4 kB of newest values. River, 0.25 or newer (ADWIN in
Rust), is imported when a state is first made: without it the package imports all the same.

Sources: Bifet & Gavalda 2007, doi:10.1137/1.9781611972771.42; Page 1954,
doi:10.1093/biomet/41.1-2.100; Raab, Heusinger & Schleif 2020, doi:10.1016/j.neucom.2019.11.111.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Final, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import HIGHEST, LOWEST
from detectors.panes import ValuesPane
from detectors.protocol import Direction, DriftScore

Kind = Literal["adwin", "kswin", "page_hinkley"]
KINDS: Final[tuple[Kind, ...]] = ("adwin", "kswin", "page_hinkley")

RECENT_SAMPLES: Final = 1_000
"""The newest values, from which the P99 and the median before a change are taken."""
_NEWEST_SAMPLES: Final = 30
"""The values that stand for "after the change"; KSWIN's test window has as many."""

_CHECKSUM_BYTES: Final = 4
_ADMITTED: Final = frozenset(
    {
        ("river.drift.adwin", "ADWIN"),
        ("river._river_rust.drift", "AdaptiveWindowing"),
        ("river.drift.kswin", "KSWIN"),
        ("river.drift.page_hinkley", "PageHinkley"),
        ("river.stats.mean", "Mean"),
        ("collections", "deque"),
        ("random", "Random"),
    }
)
"""All that the pickle of such a detector may name; none of it does anything but hold numbers."""
_PAGE_HINKLEY_TESTS: Final = frozenset({"_test_both", "_test_increase", "_test_decrease"})


class _Drift(Protocol):
    """The part of river's detectors that is used."""

    drift_detected: bool

    def update(self, x: float) -> object: ...


class RiverDrift:
    """One of river's detectors, alive, and as bytes in a checkpoint.

    The bytes are a checksum, river's version and a pickle. They are read by an unpickler that
    admits river's detectors and what they consist of, so that a forged checkpoint runs no code; and
    only by the very version of river that wrote them, whose compiled part ends the process over
    the bytes of another.
    """

    __slots__ = ("_live",)

    def __init__(self, live: _Drift) -> None:
        self._live = live

    @classmethod
    def make(cls, kind: Kind, seed: int) -> Self:
        """Return a detector that has seen nothing, with river's defaults; ``seed`` is KSWIN's."""
        from river import drift  # noqa: PLC0415 - river is optional.

        if kind == "adwin":
            return cls(drift.ADWIN())
        return cls(drift.KSWIN(seed=seed) if kind == "kswin" else drift.PageHinkley())

    def fires(self, value: float) -> bool:
        """Take one value; return whether a change is detected at it."""
        self._live.update(value)
        return bool(self._live.drift_detected)

    def to_bytes(self) -> bytes:
        """Return all that the detector knows."""
        for name, value in vars(self._live).items():
            # KSWIN's p-value: numpy's pickles differ between its versions, Python's floats do not.
            if isinstance(value, np.floating):
                setattr(self._live, name, float(value))
        payload = _river_version() + pickle.dumps(self._live, protocol=5)
        return zlib.crc32(payload).to_bytes(_CHECKSUM_BYTES, "big") + payload

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the detector that ``to_bytes`` wrote; it goes on as if it had never stopped.

        Raises:
            ValueError: If ``raw`` is damaged, from another version of river, or names anything
                that such a detector does not consist of.
        """
        from river.base import DriftDetector  # noqa: PLC0415 - river is optional.

        checksum, payload = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        if checksum != zlib.crc32(payload).to_bytes(_CHECKSUM_BYTES, "big"):
            raise ValueError("a detector's state is damaged: its checksum differs")
        version, pickled = _river_version(), payload.partition(b"\0")[2]
        if not payload.startswith(version):
            theirs = payload.partition(b"\0")[0][:40]
            raise ValueError(f"a detector's state was written by {theirs!r}, not by {version!r}")
        try:
            live = _Unpickler(io.BytesIO(pickled)).load()
        except (pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"a detector's state cannot be read: {error}") from error
        if not isinstance(live, DriftDetector):
            raise ValueError(f"a detector's state holds a {type(live).__name__}, no detector")
        return cls(live)


def _river_version() -> bytes:
    import river  # noqa: PLC0415 - river is optional.

    return f"river {river.__version__}\0".encode()


def _page_hinkley_test(owner: object, name: str) -> MethodType:
    """Stand in for ``getattr``, by which a pickle names a bound method: for these three alone."""
    found = getattr(owner, name, None) if name in _PAGE_HINKLEY_TESTS else None
    if not isinstance(found, MethodType):
        raise ValueError(f"a detector's state asks for {name!r}, which is no test of Page-Hinkley")
    return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (module, name) == ("builtins", "getattr"):
            return _page_hinkley_test
        if (module, name) not in _ADMITTED:
            raise ValueError(f"a detector's state names {module}.{name}, which is not admitted")
        found: Callable[..., object] = super().find_class(module, name)
        return found


@dataclass(slots=True)
class RiverState:
    """What one series has seen.

    A checkpoint carries ``drift`` as its ``to_bytes()``; all else is plain.

    Attributes:
        drift: The detector.
        recent: The newest values, in order, at most ``RECENT_SAMPLES``.
        seen: Values so far.
        detections: Times it has fired since it was warm.
        fired_s: Event time of the value at which it last did.
        direction: Where the values went then.
    """

    drift: RiverDrift
    recent: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    seen: int = 0
    detections: int = 0
    fired_s: float | None = None
    direction: Direction = "none"


class RiverDetector:
    """One of river's detectors, one score a pane; values as logarithms (see the module's text).

    A pane is drifting if the detector fires at one of its values, and for ``hold_s`` of event time
    after that: a firing is a moment, but an alert has a duration. After a firing river's detectors
    start anew by themselves.

    Args:
        make: Which detector, with river's default parameters.
        seed: For KSWIN, which draws its reference sample at random.
        warmup_samples: So many values are learned from before a firing counts.
        hold_s: How long a firing is held, in seconds.

    Raises:
        ValueError: If ``make`` is unknown, or a number is negative.
        ModuleNotFoundError: From ``initial``, if river is not installed.
    """

    state_type = RiverState

    def __init__(
        self, make: Kind, *, seed: int = 0, warmup_samples: int = 300, hold_s: float = 60.0
    ) -> None:
        if make not in KINDS:
            raise ValueError(f"make must be one of {', '.join(KINDS)}, got {make!r}")
        if warmup_samples < 0 or not hold_s >= 0.0:
            raise ValueError(
                f"warmup_samples and hold_s must be 0 or more, got {warmup_samples} and {hold_s}"
            )
        self._make: Kind = make
        self.kind = f"river {make}"
        self._seed = seed
        self._warmup_samples = warmup_samples
        self._hold_s = hold_s

    def initial(self) -> RiverState:
        return RiverState(RiverDrift.make(self._make, self._seed))

    def new_pane(self) -> ValuesPane:
        return ValuesPane()

    def renew(self, state: RiverState, why: str, *, accepted: bool = False) -> None:
        """Do nothing: these detectors forget by themselves."""

    def update(
        self,
        state: RiverState,
        pane: ValuesPane,
        end_s: float,
        *,
        series: int = 1,  # noqa: ARG002 - their false-alarm rates are their own.
    ) -> Sequence[DriftScore]:
        values, times_s = pane.in_order()
        history = np.concatenate([state.recent, values])
        fired = self._firings(state, values)
        state.seen += values.size
        state.detections += len(fired)
        if fired:
            last = fired[-1]
            state.fired_s = float(times_s[last])
            state.direction = _direction(history[: state.recent.size + last + 1])
        # Not a view: it would keep all of history alive.
        state.recent = history[-RECENT_SAMPLES:].copy()
        return [self._score(state, values.size, end_s, fired=bool(fired))]

    def _firings(self, state: RiverState, values: NDArray[np.float32]) -> list[int]:
        """Return which of ``values`` the detector fires at; it does not count while warming up."""
        logs = np.log(np.clip(values, LOWEST, HIGHEST).astype(np.float64))
        fires = state.drift.fires
        fired = [i for i, value in enumerate(logs.tolist()) if fires(value)]
        return [i for i in fired if state.seen + i >= self._warmup_samples]

    def _score(self, state: RiverState, samples: int, end_s: float, *, fired: bool) -> DriftScore:
        held = state.fired_s is not None and end_s <= state.fired_s + self._hold_s
        drifting: bool | None = fired or held
        why = None
        if state.seen < self._warmup_samples:
            drifting, why = None, f"{state.seen} of {self._warmup_samples} samples"
        elif not samples and not drifting:
            drifting, why = None, "0 samples in the pane"
        return DriftScore(
            end_s=end_s,
            samples=samples,
            drifting=drifting,
            suspected=bool(drifting),
            why=why,
            p99_s=float(np.quantile(_finite(state.recent), 0.99)) if state.recent.size else None,
            direction=state.direction if drifting else "none",
            learned=f"{self._make} starts anew after it has fired" if fired else None,
            evidence={"detections": float(state.detections)},
        )


def _direction(history: NDArray[np.float32]) -> Direction:
    """Return where the median of the newest values lies from that of the values before them."""
    newest = _finite(history[-RECENT_SAMPLES:])
    before, after = newest[:-_NEWEST_SAMPLES], newest[-_NEWEST_SAMPLES:]
    if not before.size:
        return "none"
    change = float(np.median(after)) - float(np.median(before))
    if change > 0.0:
        return "slower"
    return "faster" if change < 0.0 else "none"


def _finite(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return ``values``, infinite ones as the largest float32: numpy's quantile of those is NaN."""
    return np.nan_to_num(values).astype(np.float64)
