"""What operators would have looked at first: causes of the field, and what is no cause."""

import msgspec
import numpy as np
import pytest

from tests.daom.stories import (
    ENGINES,
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
    moved,
    outputs,
    rules,
    slower,
    story,
    table,
    told,
    triggers,
)

NOW = LEARNED_MINUTES
ONE = ("e1",)
FIVE = (*ENGINES, "e4", "e5")


def causes(said, signal=None):
    """The causes of each trigger, those on ``signal`` if given, best first."""
    found = [t for t in triggers(said) if signal in {None, t.labels.get("signal")}]
    return [[cause.cause for cause in trigger.causes] for trigger in found]


def with_columns(record, *, requests=None, steps=None, gauges=None):
    """``record`` with other columns and gauges."""
    tables = {
        name: table(rows.end_s, **{**rows.columns, **(columns or {})})
        for name, rows, columns in (
            ("requests", record.requests, requests),
            ("steps", record.steps, steps),
        )
    }
    return msgspec.structs.replace(record, **tables, gauges={**record.gauges, **(gauges or {})})


# Requests are preempted and queue although the gauge says that the cache is not quite full.


def preempting(record, from_minutes):
    count = max(0.0, record.start_s - at(from_minutes)) * 2.0
    return with_columns(record, gauges={"preemptions_total": count})


def test_a_queue_of_preempted_requests_is_for_want_of_memory_not_of_slots():
    storm = Load(ttft=1.5, itl=2.5, gauges={"kv_usage": 0.93, "waiting": 6.0, "running": 40.0})
    records = from_here(calm(4), chapter(6, storm), engines=ONE)

    said = told(learned_cell(ONE), [preempting(r, NOW + 4) for r in records])

    [first, *_] = triggers(said)
    assert [cause.cause for cause in first.causes] == ["preemption", "queue_saturation"]
    assert not any("slots" in word for cause in first.causes for word in cause.evidence)


# Clients try again: three times the requests, which queue.


def test_a_queue_that_a_storm_of_retries_makes_comes_after_the_storm():
    storm = Load(requests=130, ttft=3.0, itl=1.4, gauges={"waiting": 25.0, "running": 64.0})

    said = after_learning(calm(5), chapter(6, storm))

    assert causes(said)[0] == ["traffic_surge", "queue_saturation"]
    assert {a.attribution for a in moved(said)} == {"mixed"}


# Speculative decoding guesses worse: steps take what they took, and make fewer tokens.


def drafting(record, tokens, from_minutes):
    """Three drafts a step and request, of which ``tokens - 1`` are accepted."""
    steps, requests = record.steps.columns, record.requests.columns
    decoding_s = (requests["e2e_s"] - requests["ttft_s"]) * 3.0 / tokens
    drafts = 10_000.0 + 100.0 * (record.start_s - at(0))
    # What was accepted before the change stays accepted.
    changed_s = min(record.start_s, at(from_minutes)) - at(0)
    since_s = record.start_s - at(0) - changed_s
    accepted = 10_000.0 + 100.0 * (2.0 * changed_s + (tokens - 1.0) * since_s) / 3.0
    return with_columns(
        record,
        steps={"itl_s": steps["itl_s"] * 3.0, "tokens": steps["running"] * tokens},
        requests={"e2e_s": requests["ttft_s"] + decoding_s},
        gauges={"spec_draft_tokens_total": drafts, "spec_accepted_tokens_total": accepted},
    )


def test_drafts_that_are_rejected_are_the_cause_of_slow_answers():
    records = story(calm(27), engines=ONE)
    before, after = (lambda r: drafting(r, 3.0, 20)), (lambda r: drafting(r, 1.3, 20))

    said = outputs([before(r) if r.start_s < at(20) else after(r) for r in records])

    assert moved(said)[0].labels["signal"] == "e2e_s"
    assert causes(said, "e2e_s")[0] == ["rejected_drafts"]


# Long prompts are read while others wait for their tokens.


def held_up(record, seed):
    rng = np.random.default_rng((seed, round(record.start_s)))
    times = np.where(rng.uniform(size=record.steps.rows) < 0.15, 12.0, 1.0)
    requests = record.requests.columns
    decoding_s = (requests["e2e_s"] - requests["ttft_s"]) * (1.0 + 0.15 * 11.0)
    return with_columns(
        record,
        steps={"itl_s": record.steps.columns["itl_s"] * times},
        requests={"e2e_s": requests["ttft_s"] + decoding_s},
    )


def test_tokens_that_wait_while_long_prompts_are_read_are_not_the_services_doing_alone():
    records = from_here(calm(3), chapter(6, Load(long_share=0.6)))
    late = [held_up(r, n) if r.start_s >= at(NOW + 3) else r for n, r in enumerate(records)]

    said = told(learned_cell(), late)

    [firing] = moved(said, "itl_s")
    assert (firing.labels.get("engine"), firing.attribution) == (None, "mixed")
    assert causes(said, "itl_s")[0] == ["longer_requests"]


# Replicas that a scaler has added compile and find empty caches.

COLD = Load(ttft=25.0, itl=3.0)


def with_cold_replicas(minutes):
    chapters = [calm(20), chapter(minutes, e4=COLD, e5=COLD), calm(6)]
    added = {"e4", "e5"}
    return [
        r
        for r in story(*chapters, engines=FIVE)
        if r.source.engine not in added or r.start_s >= at(20)
    ]


def test_replicas_that_are_cold_for_a_minute_page_nobody():
    said = outputs(with_cold_replicas(1))

    assert moved(said) == []
    assert ("newcomers", "*", "ttft_s") in rules(said)


def test_replicas_that_stay_cold_are_named_and_the_fleet_is_not():
    said = outputs(with_cold_replicas(4))

    assert {a.labels.get("engine") for a in alerts(said, "firing")} == {"e4", "e5"}
    assert {found[0] for found in causes(said)} == {"new_engines"}


# A faster version goes from engine to engine.


@pytest.fixture(scope="module")
def faster_rollout():
    fast = slower(0.7)
    steps = [{"e1": fast}, {"e1": fast, "e2": fast}, {"e1": fast, "e2": fast, "e3": fast}]
    records = from_here(calm(3), *(chapter(6, **of) for of in steps), engines=FIVE)
    deploys = [change("deploy", at(NOW + 3 + 6 * n), f"e{n + 1}", version="fp8") for n in range(3)]
    return told(learned_cell(FIVE), by_time(records, deploys))


def test_engines_that_others_have_outrun_page_nobody(faster_rollout):
    fired = alerts(faster_rollout, "firing")

    assert {(a.labels["engine"], a.labels["severity"]) for a in fired} == {
        ("e4", "info"),
        ("e5", "info"),
    }
    assert all("others have become faster" in a.annotations["summary"] for a in fired)


# One engine reads prompts slowly, and all decode slowly.


def test_what_one_engine_has_beside_does_not_hide_what_all_have():
    slow = chapter(5, Load(itl=1.5), e2=Load(ttft=1.6, itl=1.5))

    said = after_learning(calm(3), slow)

    assert set(briefly(alerts(said, "firing"))) == {
        ("LatencyDrift", "e2", "ttft_s", "firing"),
        ("LatencyDrift", "*", "itl_s", "firing"),
    }
