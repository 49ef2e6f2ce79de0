"""A fleet under faults: workers, brokers, bridge and Alertmanager fail, records are noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, ON_ANY_BROKER
from tests.chaos.runner import rounds

ROUNDS = 30
SEED = 1
"""On the embedded broker its last fault is the long one, which is left out."""


@pytest.mark.slow
@pytest.mark.alertmanager
@pytest.mark.timeout(1_500)
def test_thirty_faults_lose_nothing_and_nothing_is_said_in_two_ways(
    kafka_script: Path, tmp_path: Path
) -> None:
    done = list(rounds(tmp_path, SEED, ROUNDS))

    assert [each.wrong for each in done if each.wrong] == []
    assert len(done) == ROUNDS
    assert {each.fault for each in done} == {fault.name for fault in FAULTS}
    # It would be easy to lose nothing where there is nothing to lose.
    assert max(each.firing for each in done) > 0
    assert done[-1].repeats > 0


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.alertmanager
@pytest.mark.timeout(600)
def test_what_befalls_workers_and_records_loses_nothing_on_the_embedded_broker(
    tmp_path: Path,
) -> None:
    """What befalls a broker needs one that keeps its data: the test above, on Apache Kafka."""
    short = {fault.name for fault in ON_ANY_BROKER} - {"worker paused"}

    done = list(rounds(tmp_path, SEED, len(short), embedded=True))

    assert [each.wrong for each in done if each.wrong] == []
    assert {each.fault for each in done} == short
    outputs = [each.outputs for each in done]
    assert outputs == sorted(set(outputs)), "each round says something new that could be lost"
