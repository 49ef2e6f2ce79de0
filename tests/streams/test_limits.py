"""Limits live: the same after a crash, counted, and no way to make one message many."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from daom.codec import encode_json, encode_output
from daom.config import Config
from daom.events import Alert
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import LogRecord
from streams.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint, judged_by
from streams.metrics import WorkerMetrics
from streams.partition import PartitionFold
from tests.daom.messages import GOOD, changed, written
from tests.daom.stories import MODEL, T0, batch, calm, source, story
from tests.streams.memory_log import TOPICS, Log, run

SMALL = cell_settings(Config.model_validate({"limits": {"engines": 1, "quantities": 8}}))


def noisy():
    """A calm engine among invented ones."""
    values = []
    for number, record in enumerate(story(calm(3), engines=("e1",))):
        gauges = {f"g{number}": 1.0, "running": 2.0}
        invented = batch(f"pod-{number}", T0, source=source(f"pod-{number}"))
        noisy_self = msgspec.structs.replace(record, gauges=gauges)
        values += [encode_json(noisy_self), encode_json(invented)]
    return values


NOISY = noisy()


def said(fold, values):
    return [encode_output(o) for value in values for o in fold.take(value, MODEL).outputs]


@settings(deadline=None, max_examples=15)
@given(st.integers(1, len(NOISY) - 1))
def test_a_checkpoint_anywhere_changes_nothing_of_what_is_refused_and_said(cut):
    before = Fold(SMALL)
    first = said(before, NOISY[:cut])
    state = before.cells[MODEL].state
    value = encode_checkpoint(
        Checkpoint(cell=MODEL, model=MODEL, offset=cut, judged_by=judged_by(SMALL), state=state)
    )
    after, steady = Fold(SMALL), Fold(SMALL)
    after.restore(MODEL, MODEL, decode_checkpoint(value, SMALL).state)

    assert first + said(after, NOISY[cut:]) == said(steady, NOISY)
    assert after.cells[MODEL].state.limits == steady.cells[MODEL].state.limits
    assert any(b'"LimitReached"' in value for value in first + said(Fold(SMALL), NOISY))


def test_a_record_that_is_only_refused_moves_the_cell_on_but_is_not_heard():
    partition = PartitionFold(0, Fold(SMALL), 0, partitions=1)
    first, refused = (encode_json(batch(name, T0)) for name in ("e1", "new"))

    partition.take(LogRecord(0, MODEL.encode(), first, None), 10.0)
    folded = partition.take(LogRecord(1, MODEL.encode(), refused, None), 99.0)

    progress = partition.progress[MODEL]
    assert (folded.record, folded.noted) == (None, True)
    assert (progress.offset, progress.heard_s) == (2, 10.0)
    assert partition.take(LogRecord(1, MODEL.encode(), refused, None), 99.0) is None


def test_hits_are_counted_by_limit():
    registry, fold = CollectorRegistry(), Fold(SMALL)
    metrics = WorkerMetrics(registry)
    for name in ("e1", "new", "newer"):
        metrics.record(fold.take(encode_json(batch(name, T0)), MODEL))

    assert registry.get_sample_value("daom_limit_hits_total", {"limit": "engines"}) == 2.0
    assert registry.get_sample_value("daom_dead_letters_total", {"kind": "limit"}) == 2.0


@pytest.mark.parametrize("wrong", [3, 30])
def test_a_record_of_many_faults_is_kept_whole_with_the_first_few_only(wrong):
    log = Log()
    value = written(changed(GOOD, "gauges", {f"g{n}": "wrong" for n in range(wrong)}))
    log.write(value, cell="m")

    async def deliver():
        owner = log.owner()
        await log.deliver(owner)
        await owner.save()

    run(deliver())

    letters = [record.value for record in log.partition(TOPICS.dead_letters)]
    assert len(letters) == wrong, "each fault is told"
    assert sum(letter == value for letter in letters) == min(wrong, 8)


def test_the_alert_is_published_as_any_other():
    published = [
        msgspec.json.decode(v, type=Alert) for v in said(Fold(SMALL), NOISY) if b'"ale' in v
    ]

    limits = {a.labels["limit"] for a in published if a.name == "LimitReached"}
    assert limits == {"engines", "quantities"}
