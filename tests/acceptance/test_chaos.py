"""A fleet under faults: workers, brokers, bridge and Alertmanager fail, records are noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.runner import rounds

ROUNDS = 30
SEED = 1


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
