"""Engines that are known by bucket counts only, as a cell sees them."""

import numpy as np
import pytest

from daom.codec import encode_msgpack
from daom.config import Config
from daom.events import (
    Alert,
    DriftVerdict,
    Histogram,
    RcaTrigger,
    Source,
    Suppression,
    TelemetryBatch,
)
from daom.fold import Fold
from daom.presets import cell_settings
from streams.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint, judged_by
from tests.daom.stories import T0, calm, story

EDGES = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, np.inf])
INTERVAL_S = 10.0
MODEL = "m"


def counted(engine, number, factor=1.0, samples=60, **gauges):
    """What an engine counted in one interval, of latencies around 0.3 s."""
    rng = np.random.default_rng((sum(engine.encode()), number))
    values = factor * 0.3 * rng.lognormal(0.0, 0.5, rng.poisson(samples))
    counts = np.bincount(np.searchsorted(EDGES, values), minlength=EDGES.size)
    end_s = T0 + INTERVAL_S * (number + 1) + 0.3
    return TelemetryBatch(
        source=Source(model=MODEL, engine=engine, boot="1", seq=number),
        start_s=end_s - INTERVAL_S,
        end_s=end_s,
        gauges={"running": 12.0, "waiting": 0.0} | gauges,
        histograms={"ttft_s": Histogram(le_s=EDGES, counts=counts.astype(np.int64))},
    )


def fold_of(preset="default"):
    return Fold(cell_settings(Config(preset=preset)))


def said(batches, fold=None):
    fold = fold or fold_of()
    outputs = []
    for batch in batches:
        done = fold.take(encode_msgpack(batch), MODEL)
        assert done.faults == ()
        outputs.extend(done.outputs)
    return outputs


def of_kind(kind, outputs, engine="a"):
    found = [output for output in outputs if isinstance(output, kind)]
    if kind is DriftVerdict:
        return [verdict for verdict in found if verdict.series.engine == engine]
    return found


def minutes(first, last, factor=1.0, engines=("a",)):
    numbers = range(6 * first, 6 * last)
    return [counted(engine, number, factor) for number in numbers for engine in engines]


@pytest.fixture(scope="module")
def calm_then_slower():
    return said(minutes(0, 30) + minutes(30, 45, 1.4))


def test_forty_percent_more_is_a_drift_that_says_how_well_it_is_known(calm_then_slower):
    last = of_kind(DriftVerdict, calm_then_slower)[-1]

    assert last.drifting is True
    assert (last.direction, last.attribution) == ("slower", "mixed")
    assert last.why == "resolution limited by buckets: P99 is between 1 s and 2.5 s"
    assert last.p99_s == 2.5
    assert last.evidence["bucket_ratio"] == 2.5


def test_before_it_nothing_drifts(calm_then_slower):
    verdicts = of_kind(DriftVerdict, calm_then_slower)
    before = [verdict for verdict in verdicts if verdict.event_time_s < T0 + 30 * 60]

    assert len(before) > 170
    assert not any(verdict.drifting is True for verdict in before)
    assert before[-1].drifting is False
    assert "resolution limited by buckets" in before[-1].why


def test_its_alert_says_so_too_and_by_how_much_it_is_slower(calm_then_slower):
    firing = [a for a in of_kind(Alert, calm_then_slower) if a.state == "firing"]

    assert [(a.name, a.labels["severity"]) for a in firing] == [("LatencyDrift", "warning")]
    assert "resolution limited by buckets" in firing[0].annotations["tail"]
    assert of_kind(RcaTrigger, calm_then_slower)


def test_half_an_hour_of_the_same_says_nothing():
    outputs = said(minutes(0, 60))

    assert not any(verdict.drifting is True for verdict in of_kind(DriftVerdict, outputs))
    assert of_kind(Alert, outputs) == of_kind(Suppression, outputs) == []


def test_an_engine_that_counts_is_getting_on():
    busy = [counted("a", n, running=40.0) for n in range(90)]

    assert of_kind(Alert, said(busy)) == []


def test_one_that_counts_nothing_with_work_in_flight_is_stalled():
    stuck = [counted("a", n, samples=0 if n > 12 else 60) for n in range(90)]

    assert {alert.name for alert in of_kind(Alert, said(stuck))} == {"EngineStalled"}


def test_engines_that_count_alike_are_compared_with_one_another():
    batches = [
        counted(engine, number, 1.6 if engine == "c" else 1.0)
        for number in range(120)
        for engine in ("a", "b", "c", "d")
    ]

    slow = {a.labels["engine"] for a in of_kind(Alert, said(batches)) if "Peers" in a.name}

    assert slow == {"c"}


def test_counts_and_rows_are_not_compared_with_one_another():
    """What stands for a bucket is no measurement, and no engine is slow for it."""
    rows = story(calm(20), engines=("e1", "e2", "e3"))
    batches = [counted(engine, number, 0.2) for number in range(120) for engine in ("x", "y")]
    fold = fold_of()
    for batch in sorted([*rows, *batches], key=lambda batch: batch.end_s):
        source = Source(model=MODEL, engine=batch.source.engine, boot="1", seq=batch.source.seq)
        record = TelemetryBatch(
            source=source,
            start_s=batch.start_s,
            end_s=batch.end_s,
            requests=batch.requests,
            gauges=batch.gauges,
            histograms=batch.histograms,
        )
        assert not [o for o in said([record], fold) if isinstance(o, Alert)]


def test_counts_of_a_closed_pane_are_late():
    fold = fold_of()
    said([counted("a", number) for number in range(4)], fold)
    late = counted("a", 0)

    said([TelemetryBatch(source=Source(model=MODEL, engine="a"), **_rest(late))], fold)

    assert fold.counters()["late_samples"] == late.histograms["ttft_s"].total


def _rest(batch):
    return {
        "start_s": batch.start_s,
        "end_s": batch.end_s,
        "histograms": batch.histograms,
    }


def test_other_presets_take_samples_one_by_one_and_say_that_they_do_not_judge_counts():
    fold = fold_of("page_hinkley")

    outputs = said([counted("a", number) for number in range(4)], fold)

    assert of_kind(DriftVerdict, outputs) == []
    assert fold.counters() == {"histograms_not_judged": 4}


def test_a_restart_in_the_middle_changes_nothing():
    batches = minutes(0, 12)
    settings = cell_settings(Config())
    steady, stopped = fold_of(), fold_of()
    expected = said(batches, steady)

    before = said(batches[:47], stopped)
    sent = encode_checkpoint(
        Checkpoint(
            cell=MODEL,
            model=MODEL,
            offset=47,
            judged_by=judged_by(settings),
            state=stopped.cells[MODEL].state,
        )
    )
    resumed = fold_of()
    resumed.restore(MODEL, MODEL, decode_checkpoint(sent, settings).state)
    after = said(batches[47:], resumed)

    assert before + after == expected
