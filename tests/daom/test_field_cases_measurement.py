"""Measurements that cannot be believed: caps, gaps that disagree, requests counted otherwise."""

import msgspec
import numpy as np
import pytest

from tests.daom.stories import (
    LEARNED_MINUTES,
    Load,
    after_learning,
    alerts,
    at,
    briefly,
    by_time,
    calm,
    change,
    chapter,
    from_here,
    learned_cell,
    outputs,
    slower,
    story,
    table,
    told,
    triggers,
    verdicts,
)

NOW = LEARNED_MINUTES
ONE = ("e1",)


def drifts(said):
    return [a for a in alerts(said) if a.name == "LatencyDrift" and a.state != "pending"]


def suspects(said):
    return [a for a in alerts(said) if a.name == "MeasurementSuspect"]


# A P99 pinned at 60 s: the requests that take longer are recorded as that.

CAP_S = 60.0


def capped(records, share, from_minutes=0.0):
    """Return ``records`` whose slowest ``share`` of requests are recorded as the cap."""
    return [with_cap(r, share) if r.start_s >= at(from_minutes) else r for r in records]


def with_cap(record, share):
    columns, rows = dict(record.requests.columns), record.requests.rows
    rng = np.random.default_rng(round(record.start_s))
    slow = rng.uniform(size=rows) < share
    for name in ("ttft_s", "e2e_s"):
        columns[name] = np.where(slow, np.float32(CAP_S), columns[name])
    return msgspec.structs.replace(record, requests=table(record.requests.end_s, **columns))


@pytest.mark.parametrize("share", [0.03, 0.05, 0.3])
def test_a_p99_that_was_always_at_a_cap_is_called_neither_calm_nor_slow(share):
    said = outputs(capped(story(calm(25), engines=ONE), share))

    last = [v for v in verdicts(said, "ttft_s") if v.event_time_s > at(20)]
    assert {v.drifting for v in last} == {"insufficient"}
    assert all("P99 is saturated" in v.why and "exactly 60 s" in v.why for v in last)
    assert last[-1].evidence["saturated_share"] == pytest.approx(share, rel=0.6)
    assert drifts(said) == []


def test_a_p99_that_jumps_to_a_cap_is_unresolved_and_its_share_is_what_has_drifted():
    records = capped(from_here(calm(10), engines=ONE), 0.05, from_minutes=NOW + 3)

    said = told(learned_cell(ONE), records)

    last = [v for v in verdicts(said, "ttft_s") if v.event_time_s > at(NOW + 6)]
    assert {v.drifting for v in last} <= {True, "insufficient"}
    assert all("P99 is saturated" in v.why for v in last)
    [opened, *_] = drifts(said)
    assert "60 s, the largest: it is that or more" in opened.annotations["tail"]


def test_a_drift_below_a_usual_cap_is_seen_and_its_alert_resolves():
    slow = chapter(6, slower(1.6))

    said = outputs(capped(story(calm(18), slow, calm(14), engines=ONE), 0.04))

    assert [a.state for a in drifts(said)] == ["firing", "resolved"]


@pytest.mark.parametrize("resolution_s", [1e-3, 1e-2], ids=["1 ms", "10 ms"])
def test_a_coarse_clock_is_no_cap(resolution_s):
    records = [coarse(r, resolution_s) for r in story(calm(25), engines=ONE)]

    said = verdicts(outputs(records))

    last = [v for v in said if v.event_time_s > at(20) and v.series.signal != "itl_s"]
    assert {v.drifting for v in last} == {False}


def coarse(record, resolution_s):
    columns = dict(record.requests.columns)
    for name in ("ttft_s", "e2e_s"):
        columns[name] = np.ceil(columns[name] / resolution_s) * resolution_s
    return msgspec.structs.replace(record, requests=table(record.requests.end_s, **columns))


# The mean gap between tokens, as steps tell it and as requests do: 8.72 against 3.20 ms where
# chunks were counted as tokens.


def gaps_times(records, factor, from_minutes=0.0):
    """Return ``records`` whose steps' gaps are ``factor`` times as long; requests stay."""
    return [
        with_gaps(r, factor) if getattr(r, "start_s", 0.0) >= at(from_minutes) else r
        for r in records
    ]


def with_gaps(record, factor):
    columns = dict(record.steps.columns)
    columns["itl_s"] = columns["itl_s"] * np.float32(factor)
    return msgspec.structs.replace(record, steps=table(record.steps.end_s, **columns))


@pytest.mark.parametrize("factor", [8.72 / 3.20, 3.20 / 8.72], ids=["too long", "too short"])
def test_gaps_that_disagree_with_their_requests_are_flagged_and_page_nobody(factor):
    said = outputs(gaps_times(story(calm(25), engines=ONE), factor))

    assert briefly(suspects(said)) == [("MeasurementSuspect", "e1", "", "firing")]
    assert suspects(said)[0].labels["severity"] == "info"
    assert drifts(said) == []


def test_the_time_to_the_first_token_among_the_gaps_is_recognised():
    late = Load(ttft=80.0, output_tokens=80.0)
    records = [with_ttft_among_gaps(r) for r in story(chapter(25, late), engines=ONE)]

    [suspect] = suspects(outputs(records))

    assert "as if the time to the first token were among the gaps" in suspect.annotations["summary"]


def with_ttft_among_gaps(record):
    """A list of gaps that begins with the time to the first token of each request."""
    requests = record.requests.columns
    decoding_s = requests["e2e_s"] - requests["ttft_s"]
    itl_s = np.concatenate([requests["ttft_s"], decoding_s])
    tokens = np.concatenate([np.ones(record.requests.rows), requests["output_tokens"] - 1.0])
    per_token = itl_s / np.maximum(tokens, 1.0)
    times = np.concatenate([record.requests.end_s] * 2)
    steps = table(times, itl_s=per_token, running=tokens, tokens=tokens * (itl_s != per_token))
    return msgspec.structs.replace(record, steps=steps)


NORMAL = {
    "calm": Load(),
    "few requests": Load(requests=0.5),
    "very few requests": Load(requests=0.1),
    "short answers": Load(output_tokens=4.0),
    "long answers": Load(output_tokens=2_000.0, requests=2.0),
    "few steps": Load(steps=3),
}


@pytest.mark.parametrize("load", NORMAL.values(), ids=NORMAL)
def test_what_is_measured_rightly_is_not_suspected(load):
    assert suspects(outputs(story(chapter(60, load), engines=ONE))) == []


def test_several_tokens_a_step_are_no_disagreement():
    records = [with_drafts(r) for r in story(calm(25), engines=ONE)]

    assert suspects(outputs(records)) == []


def with_drafts(record):
    """Speculative decoding: three tokens a step for each request, at steps thrice as long."""
    columns = dict(record.steps.columns)
    columns["itl_s"], columns["tokens"] = columns["itl_s"] * 3.0, columns["running"] * 3.0
    return msgspec.structs.replace(record, steps=table(record.steps.end_s, **columns))


@pytest.mark.parametrize("factor", [1.6, 3.0, 10.0])
def test_a_service_that_slows_is_not_taken_for_a_measurement_that_changed(factor):
    said = after_learning(calm(3), chapter(10, slower(factor)), engines=ONE)

    assert suspects(said) == []
    assert "measurement_change" not in {c.cause for t in triggers(said) for c in t.causes}


def long_decodings(records, at_minute, factor, decoding_s=90.0):
    """Return ``records`` whose requests decode for long, and from ``at_minute`` on ever slower.

    A request that began before is slow for only a part of its time.
    """
    changed_s = at(at_minute)
    return [_decoding(r, changed_s, factor, decoding_s) for r in records]


def _decoding(record, changed_s, factor, decoding_s):
    requests, slow = dict(record.requests.columns), record.start_s >= changed_s
    since_s = np.maximum(0.0, record.requests.end_s - changed_s)
    # Of its tokens, it has made so many since: at most all.
    slow_s = np.minimum(since_s, factor * decoding_s)
    spent_s = slow_s + decoding_s - slow_s / factor
    requests["output_tokens"] = np.full(record.requests.rows, 1.0 + decoding_s / 0.02)
    requests["e2e_s"] = requests["ttft_s"] + spent_s
    told = msgspec.structs.replace(record, requests=table(record.requests.end_s, **requests))
    return with_gaps(told, factor if slow else 1.0)


@pytest.mark.parametrize("factor", [1.6, 2.0, 3.0, 10.0])
def test_nor_is_one_whose_requests_show_it_only_after_minutes(factor):
    records = story(calm(50), engines=ONE)

    said = outputs(long_decodings(records, at_minute=25, factor=factor))

    assert drifts(said)
    assert "measurement_change" not in {c.cause for t in triggers(said) for c in t.causes}


@pytest.fixture(scope="module")
def other_measurement():
    """A deployment after which steps' gaps are 2.7 times as long; requests take what they took."""
    records = gaps_times(from_here(calm(15), engines=ONE), 2.7, from_minutes=NOW + 3)
    deploy = change("deploy", at(NOW + 3), "e1", version="v2")
    return told(learned_cell(ONE), by_time(records, [deploy]))


def test_a_measurement_that_changes_is_marked_and_pages_nobody(other_measurement):
    assert {a.labels["severity"] for a in alerts(other_measurement, "firing")} == {"info"}
    assert suspects(other_measurement)[0].annotations["measurement_change"] == "true"
    assert all("measurement_change" in a.annotations for a in drifts(other_measurement))


def test_a_measurement_that_changes_is_the_first_cause(other_measurement):
    trigger = next(t for t in triggers(other_measurement) if t.name == "LatencyDrift")

    assert trigger.labels["signal"] == "itl_s"
    assert [cause.cause for cause in trigger.causes][:2] == ["measurement_change", "change_deploy"]


def test_without_any_change_a_jump_is_a_drift_whose_first_cause_is_the_measurement():
    records = gaps_times(from_here(calm(10), engines=ONE), 2.7, from_minutes=NOW + 3)

    said = told(learned_cell(ONE), records)

    [trigger, *_] = triggers(said)
    assert trigger.labels["severity"] == "critical"
    assert trigger.causes[0].cause == "measurement_change"


# Gauges that stand still, and clocks that are set


@pytest.mark.parametrize(
    ("gauges", "doubted"),
    [
        ({}, None),
        ({"running": 12.0}, "running has never moved"),
        ({"kv_usage": 0.0}, "kv_usage has never moved"),
        ({"kv_usage": 0.4, "waiting": 3.0}, "waiting has never moved; kv_usage has never moved"),
    ],
    ids=["all is well", "running", "a cache at zero", "several"],
)
def test_a_drift_says_which_gauges_have_never_moved(gauges, doubted):
    calm_load, slow = Load(gauges=gauges), Load(ttft=1.6, itl=1.6, gauges=gauges)

    said = outputs(story(chapter(15, calm_load), chapter(5, slow), engines=ONE))

    opened = drifts(said)
    assert opened
    assert {a.annotations.get("data_quality") for a in opened} == {doubted}


def test_a_drift_after_a_clock_was_set_says_so_and_names_it_as_a_cause():
    before, after = ({"clock_jumps_total": float(n)} for n in (0, 1))
    records = story(
        chapter(15, Load(gauges=before)),
        chapter(5, Load(ttft=1.6, gauges=after)),
        engines=ONE,
    )

    said = outputs(records)

    assert {a.annotations["data_quality"] for a in drifts(said)} == {"a clock has jumped"}
    causes = [cause.cause for trigger in triggers(said) for cause in trigger.causes]
    assert "clock_jump" in causes
