from __future__ import annotations

import pickle
import subprocess
import sys
import zlib
from collections import deque

import numpy as np
import pytest
import river

from detectors.river_adapters import RECENT_SAMPLES, RiverDetector, RiverDrift

KINDS = ["adwin", "kswin", "page_hinkley"]
PANE_S = 10.0


def scores(detector, values, samples_a_pane=10, state=None):
    state = detector.initial() if state is None else state
    found = []
    for begin in range(0, len(values), samples_a_pane):
        rows = np.asarray(values[begin : begin + samples_a_pane], np.float32)
        end_s = (begin // samples_a_pane + 1) * PANE_S
        pane = detector.new_pane()
        pane.add(rows, end_s - PANE_S * np.arange(len(rows))[::-1] / samples_a_pane, None)
        found.extend(detector.update(state, pane, end_s))
    return found


def fired(found):
    """The panes in which the detector fired, not those in which that was held."""
    return [number for number, score in enumerate(found) if score.learned]


def lognormal(seed, samples, factor=1.0):
    return factor * np.random.default_rng(seed).lognormal(-4.0, 0.5, samples)


def sealed(pickled):
    """The form of ``to_bytes`` around whatever pickle."""
    payload = f"river {river.__version__}\0".encode() + pickled
    return zlib.crc32(payload).to_bytes(4, "big") + payload


class Forged:
    """Pickles as a call of whatever function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def test_adwin_finds_each_of_two_changes_once():
    """river#574 reported that it fires repeatedly at each."""
    rng = np.random.default_rng(42)
    levels = [
        rng.normal(0.8, 0.05, 1_000),
        rng.normal(0.4, 0.02, 1_000),
        rng.normal(0.6, 0.1, 1_000),
    ]

    found = scores(RiverDetector("adwin"), np.concatenate(levels))

    assert fired(found) == [102, 204]
    assert [found[pane].direction for pane in fired(found)] == ["faster", "slower"]
    assert found[-1].evidence["detections"] == 2.0


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.0, 1e9, 0.0, -1.0, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_stream_never_fires(kind, value):
    found = scores(RiverDetector(kind, warmup_samples=0), np.full(300, value))

    assert [score.drifting for score in found] == [False] * 30


@pytest.mark.parametrize(("kind", "panes"), [("adwin", 15), ("page_hinkley", 15), ("kswin", 6)])
def test_half_slower_is_found_in_milliseconds_as_in_minutes(kind, panes):
    """Logarithms are passed on, so the unit does not matter."""
    values = np.concatenate([lognormal(1, 500), lognormal(2, 300, factor=1.5)])

    found = [scores(RiverDetector(kind), scale * values) for scale in (1.0, 1_000.0)]

    assert any(50 <= pane < 50 + panes for pane in fired(found[0]))
    assert fired(found[0]) == fired(found[1])
    assert found[0][fired(found[0])[-1]].direction == "slower"


@pytest.mark.parametrize("kind", ["adwin", "page_hinkley"])
def test_a_stationary_stream_fires_seldom(kind):
    assert fired(scores(RiverDetector(kind), lognormal(3, 8_000), 100)) == []


def test_a_firing_is_held_for_its_time_and_not_longer():
    values = np.concatenate([np.full(400, 0.1), np.full(400, 0.2)])

    found = scores(RiverDetector("adwin", hold_s=30.0), values, 32)
    (first,) = fired(found)

    assert found[first].end_s == (first + 1) * PANE_S
    assert [score.drifting for score in found[first - 1 : first + 5]] == [
        *(False, True, True, True, True, False),
    ]
    assert {s.direction for s in found[first : first + 4]} == {"slower"}
    assert found[first + 4].direction == "none"


def test_a_firing_is_held_through_empty_panes_and_then_nothing_is_known():
    detector = RiverDetector("adwin", hold_s=30.0)
    state = detector.initial()
    scores(detector, np.concatenate([np.full(400, 0.1), np.full(400, 0.2)]), 800, state)

    found = [detector.update(state, detector.new_pane(), end_s)[0] for end_s in (20.0, 60.0)]

    assert [score.drifting for score in found] == [True, None]
    assert [score.why for score in found] == [None, "0 samples in the pane"]


def test_a_firing_counts_only_once_warm():
    values = np.concatenate([np.full(100, 0.1), np.full(200, 0.2)])

    found = scores(RiverDetector("adwin", warmup_samples=290), values)

    assert [score.drifting for score in found] == [None] * 28 + [False] * 2
    assert found[0].why == "10 of 290 samples"


def test_the_p99_is_that_of_the_newest_thousand_values():
    values = lognormal(4, 2_345)

    last = scores(RiverDetector("adwin"), values, 100)[-1]

    newest = values[-RECENT_SAMPLES:].astype(np.float32)
    assert last.p99_s == pytest.approx(float(np.quantile(newest, 0.99)), rel=1e-6)
    assert last.samples == 45


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_detector_is_the_same_to_the_byte_and_goes_on_the_same(kind):
    steady = RiverDrift.make(kind, seed=7)
    for value in lognormal(5, 230):
        steady.fires(float(value))
    raw = steady.to_bytes()

    restored = RiverDrift.from_bytes(raw)

    assert restored.to_bytes() == raw
    following = [float(value) for value in lognormal(6, 200, factor=3.0)]
    assert [steady.fires(v) for v in following] == [restored.fires(v) for v in following]


def test_kswin_depends_on_its_seed_alone():
    values = lognormal(8, 400)
    runs = [scores(RiverDetector("kswin", seed=seed), values) for seed in (1, 1)]

    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(Forged(print, "run"), id="a builtin"),
        pytest.param(Forged(eval, "1 + 1"), id="eval"),
        pytest.param(Forged(subprocess.run, ["true"]), id="a process"),
        pytest.param(Forged(getattr, deque(), "append"), id="any attribute"),
        pytest.param(Forged(getattr, deque(), "_test_both"), id="a test that is none"),
    ],
)
def test_a_forged_state_runs_no_code(forged):
    with pytest.raises(ValueError, match=r"a detector's state (names|asks for)"):
        RiverDrift.from_bytes(sealed(pickle.dumps(forged)))


def test_an_admitted_module_lends_no_name_but_its_detector():
    pickled = b"\x80\x04\x8c\x11river.drift.adwin\x8c\x0eADWIN.__init__\x93."

    with pytest.raises(
        ValueError, match=r"names river\.drift\.adwin\.ADWIN\.__init__, which is not"
    ):
        RiverDrift.from_bytes(sealed(pickled))


def test_a_state_that_is_no_detector_is_refused():
    with pytest.raises(ValueError, match="holds a deque, no detector"):
        RiverDrift.from_bytes(sealed(pickle.dumps(deque([1.0]))))


@pytest.mark.parametrize("pickled", [b"", b"\x80\x05", b"no pickle", b"\x80\x05."])
def test_a_state_that_is_no_pickle_is_refused(pickled):
    with pytest.raises(ValueError, match="cannot be read"):
        RiverDrift.from_bytes(sealed(pickled))


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: b"\0" + raw[1:], lambda _: b""]
)
def test_a_damaged_state_is_refused(damage):
    raw = RiverDrift.make("adwin", 0).to_bytes()

    with pytest.raises(ValueError, match="damaged"):
        RiverDrift.from_bytes(damage(raw))


def test_a_state_of_another_river_is_refused_by_name():
    payload = b"river 0.1.0\0" + b"whatever"

    with pytest.raises(ValueError, match=r"written by b'river 0\.1\.0'"):
        RiverDrift.from_bytes(zlib.crc32(payload).to_bytes(4, "big") + payload)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"make": "ddm"}, "make must be one of adwin, kswin, page_hinkley, got 'ddm'"),
        ({"make": "adwin", "warmup_samples": -1}, "must be 0 or more, got -1"),
        ({"make": "adwin", "hold_s": -1.0}, "must be 0 or more"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RiverDetector(**settings)


def test_without_river_the_module_imports_and_a_state_names_what_is_missing():
    script = (
        "import sys; sys.modules['river'] = None\n"
        "from detectors.river_adapters import RiverDetector\n"
        "detector = RiverDetector('adwin')\n"
        "try:\n    detector.initial()\n"
        "except ModuleNotFoundError as error:\n    print(error.name)\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.strip().startswith("river")
