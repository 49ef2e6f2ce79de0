"""The contract that every detector passes."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import NamedTuple, get_origin

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.kl import KlDetector
from detectors.protocol import DriftScore
from detectors.river_adapters import RiverDetector, RiverDrift
from detectors.sits2026 import Sits2026Detector

FEW = settings(max_examples=10, derandomize=True, deadline=None)
PANE_S = 10.0
ENGINES = 3


class Kind(NamedTuple):
    """A detector, and how many samples make a pane that it has something to say about."""

    make: object
    unit: int


def quick_kl():
    return KlDetector(
        strata_base=32.0,
        window_panes=2,
        window_samples=30,
        reference_blocks=2,
        reference_samples=60,
        warmup_panes=1,
        adopt_after_s=40.0,
    )


KINDS = {
    "kl": Kind(quick_kl, 40),
    "sits2026": Kind(Sits2026Detector, 310),
    "adwin": Kind(lambda: RiverDetector("adwin", warmup_samples=50), 120),
    "page_hinkley": Kind(lambda: RiverDetector("page_hinkley", warmup_samples=50), 60),
    "kswin": Kind(lambda: RiverDetector("kswin", seed=3, warmup_samples=50), 25),
}

every_detector = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Rows(NamedTuple):
    """Some rows of a pane, as they arrive from one engine."""

    values: np.ndarray
    end_s: np.ndarray
    workload: np.ndarray

    def take(self, chosen):
        return Rows(*(column[chosen] for column in self))


def pane_rows(rng, number, samples, level):
    """One pane's rows, of which a few are odd."""
    values = level * rng.lognormal(-1.0, 0.4, samples)
    odd = rng.random(samples) < 0.03
    values[odd] = rng.choice([0.0, -1.0, 1e-9, 1e9, np.inf, np.nan], odd.sum())
    return Rows(
        values.astype(np.float32),
        # Whole tenths of a second, so that many are equal.
        number * PANE_S + np.sort(rng.integers(0, 100, samples)) / 10.0,
        rng.choice([10.0, 1_000.0], samples).astype(np.float32),
    )


@st.composite
def streams(draw):
    """Panes as (share of a unit, level) and a seed: calm, a change, gaps."""
    rng_seed = draw(st.integers(0, 10_000))
    calm = draw(st.integers(6, 9))
    panes = [(1.0, 1.0)] * calm
    sizes = st.sampled_from([0.0, 0.04, 0.5, 1.0, 2.0])
    panes += draw(st.lists(st.tuples(sizes, st.sampled_from([1.0, 3.0])), min_size=3, max_size=7))
    return rng_seed, panes


def rows_of(stream, unit):
    seed, panes = stream
    rng = np.random.default_rng(seed)
    return [
        pane_rows(rng, number, math.ceil(share * unit), level)
        for number, (share, level) in enumerate(panes)
    ]


def pane_of(detector, batches):
    pane = detector.new_pane()
    for batch in batches:
        pane.add(*batch)
    return pane


def run(detector, panes, state=None, first=0):
    """Feed ``panes``, each as batches; return the scores and the state."""
    state = detector.initial() if state is None else state
    found = []
    for number, batches in enumerate(panes, first):
        found.extend(detector.update(state, pane_of(detector, batches), (number + 1) * PANE_S))
    return found, state


def encode_hook(value):
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, RiverDrift):
        return value.to_bytes()
    raise NotImplementedError(f"a checkpoint cannot carry a {type(value)}")


def decode_hook(wanted, value):
    if get_origin(wanted) is np.ndarray or wanted is np.ndarray:
        dtype, shape, raw = value
        return np.frombuffer(raw, dtype).reshape(shape).copy()
    if wanted is RiverDrift:
        return RiverDrift.from_bytes(value)
    raise NotImplementedError(f"a checkpoint does not hold a {wanted}")


def checkpointed(detector, state):
    """Return ``state`` as a worker that starts again finds it."""
    raw = msgspec.msgpack.encode(state, enc_hook=encode_hook)
    return msgspec.msgpack.decode(raw, type=detector.state_type, dec_hook=decode_hook)


@every_detector
@FEW
@given(stream=streams(), cut=st.integers(0, 12))
def test_a_restart_from_a_checkpoint_changes_no_score(kind, stream, cut):
    detector = kind.make()
    panes = [[rows] for rows in rows_of(stream, kind.unit)]
    expected, _ = run(detector, panes)

    before, state = run(detector, panes[:cut])
    after, _ = run(kind.make(), panes[cut:], checkpointed(detector, state), first=cut)

    assert before + after == expected


@every_detector
@FEW
@given(stream=streams())
def test_a_restart_at_every_pane_changes_no_score(kind, stream):
    panes = [[rows] for rows in rows_of(stream, kind.unit)]
    expected, _ = run(kind.make(), panes)
    detector = kind.make()
    state, found = detector.initial(), []
    for number, batches in enumerate(panes):
        state = checkpointed(detector, state)
        found.extend(run(detector, [batches], state, first=number)[0])

    assert found == expected


@every_detector
@FEW
@given(stream=streams())
def test_taking_a_checkpoint_leaves_the_running_state_alone(kind, stream):
    detector = kind.make()
    panes = [[rows] for rows in rows_of(stream, kind.unit)]
    expected, _ = run(detector, panes)
    state, found = detector.initial(), []
    for number, batches in enumerate(panes):
        # A checkpoint that lives on and is used must share nothing with the state.
        run(detector, [batches], checkpointed(detector, state), first=number)
        found.extend(run(detector, [batches], state, first=number)[0])

    assert found == expected


@every_detector
@FEW
@given(stream=streams())
def test_a_pane_that_is_checkpointed_half_full_changes_no_score(kind, stream):
    detector = kind.make()
    panes = rows_of(stream, kind.unit)
    expected, _ = run(detector, [[rows] for rows in panes])
    state, found = detector.initial(), []
    for number, rows in enumerate(panes):
        half = rows.values.size // 2
        restored = detector.new_pane()
        restored.restore(pane_of(detector, [rows.take(slice(None, half))]).snapshot())
        restored.add(*rows.take(slice(half, None)))
        found.extend(detector.update(state, restored, (number + 1) * PANE_S))

    assert found == expected


@every_detector
@FEW
@given(stream=streams(), cuts=st.lists(st.floats(0.0, 1.0), max_size=5))
def test_how_rows_are_cut_into_batches_changes_no_score(kind, stream, cuts):
    detector = kind.make()
    panes = rows_of(stream, kind.unit)
    expected, _ = run(detector, [[rows] for rows in panes])
    split = []
    for rows in panes:
        edges = [0, *sorted(int(cut * rows.values.size) for cut in cuts), rows.values.size]
        slices = [slice(a, b) for a, b in pairwise(edges)]
        split.append([rows.take(chosen) for chosen in slices])

    assert run(detector, split)[0] == expected


@every_detector
@FEW
@given(stream=streams(), order=st.permutations(range(ENGINES)))
def test_which_engines_batch_comes_first_changes_no_score(kind, stream, order):
    detector = kind.make()
    by_engine = [
        [rows.take(slice(engine, None, ENGINES)) for engine in range(ENGINES)]
        for rows in rows_of(stream, kind.unit)
    ]
    expected, _ = run(detector, by_engine)

    assert run(detector, [[parts[e] for e in order] for parts in by_engine])[0] == expected


@every_detector
@FEW
@given(stream=streams(), order=st.permutations(range(ENGINES)))
def test_a_fleets_pane_is_the_sum_of_its_engines_panes(kind, stream, order):
    detector = kind.make()
    panes = rows_of(stream, kind.unit)
    expected, _ = run(detector, [[rows] for rows in panes])
    state, found = detector.initial(), []
    for number, rows in enumerate(panes):
        parts = [rows.take(slice(engine, None, ENGINES)) for engine in range(ENGINES)]
        fleet = detector.new_pane()
        for engine in order:
            fleet.merge(pane_of(detector, [parts[engine]]))
        found.extend(detector.update(state, fleet, (number + 1) * PANE_S))

    assert found == expected


@every_detector
@FEW
@given(stream=streams())
def test_the_same_samples_give_the_same_scores_and_one_detector_serves_two_series(kind, stream):
    detector = kind.make()
    panes = [[rows] for rows in rows_of(stream, kind.unit)]
    expected, _ = run(kind.make(), panes)
    first, second = detector.initial(), detector.initial()
    found = []
    for number, batches in enumerate(panes):
        other = [batch._replace(values=batch.values * np.float32(2.0)) for batch in batches]
        found.extend(run(detector, [batches], first, number)[0])
        run(detector, [other], second, number)

    assert found == expected


@every_detector
@FEW
@given(stream=streams())
def test_no_score_holds_a_nan_and_each_says_what_it_is_worth(kind, stream):
    found, _ = run(kind.make(), [[rows] for rows in rows_of(stream, kind.unit)])

    for score in found:
        fields = dataclasses.asdict(score) | score.evidence
        numbers = {k: v for k, v in fields.items() if isinstance(v, float)}
        assert all(math.isfinite(number) for number in numbers.values()), score
        assert (score.drifting is None) == (score.why is not None), score
        assert type(score) is DriftScore
        assert type(score.samples) is int
        assert score.kl_nats is None or score.kl_nats >= 0.0


@every_detector
@FEW
@given(stream=streams())
def test_cycles_end_in_order_and_none_after_its_pane(kind, stream):
    panes = rows_of(stream, kind.unit)
    found, _ = run(kind.make(), [[rows] for rows in panes])
    ends = [score.end_s for score in found]

    assert len(found) >= len(panes)
    assert ends == sorted(ends)
    assert ends[-1] <= len(panes) * PANE_S


@every_detector
@FEW
@given(stream=streams(), at=st.integers(0, 12), accepted=st.booleans())
def test_a_renewal_outlives_a_restart(kind, stream, at, accepted):
    detector = kind.make()
    panes = [[rows] for rows in rows_of(stream, kind.unit)]
    before, state = run(detector, panes[:at])
    detector.renew(state, "version 2", accepted=accepted)
    restored = checkpointed(detector, state)

    steady, _ = run(detector, panes[at:], state, first=at)
    stopped, _ = run(kind.make(), panes[at:], restored, first=at)

    assert steady == stopped
    assert len(before) + len(steady) >= len(panes)


@every_detector
@FEW
@given(stream=streams())
def test_a_pane_is_left_as_it_was(kind, stream):
    detector = kind.make()
    state = detector.initial()
    for number, rows in enumerate(rows_of(stream, kind.unit)):
        pane = pane_of(detector, [rows])
        before = [column.tolist() for column in pane.snapshot()]

        detector.update(state, pane, (number + 1) * PANE_S)

        assert [column.tolist() for column in pane.snapshot()] == before


@every_detector
def test_a_stream_of_empty_panes_is_never_called_calm(kind):
    found, state = run(kind.make(), [[]] * 50)

    assert {score.drifting for score in found} == {None}
    assert {score.samples for score in found} == {0}
    assert run(kind.make(), [[]], checkpointed(kind.make(), state))[0][0].drifting is None
