"""One recording says the same, to the byte, however it comes: file, broker, partitions, workers."""

from __future__ import annotations

import pytest

from tests.fleet import LIGHT, OVERLOAD, Fleet, read_lines, said_by_replay, several_cells
from tests.servers import eventually

MODELS = ("llama-3.2-1b", "qwen3-32b", "org/mixtral-8x7b")


@pytest.fixture(scope="module")
def lines():
    return several_cells(MODELS)


@pytest.fixture(scope="module")
def expected(lines):
    return said_by_replay(lines)


@pytest.mark.slow
def test_a_recording_says_the_same_through_a_broker(any_broker, topic_prefix, tmp_path):
    lines = list(read_lines(OVERLOAD))
    expected = said_by_replay(lines)
    with Fleet(any_broker.bootstrap_servers, topic_prefix) as fleet:
        fleet.start_worker(tmp_path / "worker.log")
        fleet.play(lines)

        assert expected == fleet.says(expected)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_the_number_of_partitions_changes_nothing(
    kafka, topic_prefix, tmp_path, partitions, lines, expected
):
    with Fleet(kafka.bootstrap_servers, topic_prefix, partitions) as fleet:
        fleet.start_worker(tmp_path / "worker.log")
        fleet.play(lines)

        assert expected == fleet.says(expected)
        code, told = fleet.verified()
        assert code == 0
        # A Tick may have made more due since.
        assert told["same"] >= len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_worker_that_ends_loses_nothing_and_says_nothing_twice(
    kafka, topic_prefix, tmp_path, end, lines, expected
):
    """Two share the cells; one ends in the middle, by SIGTERM or by SIGKILL; the other goes on."""
    with Fleet(kafka.bootstrap_servers, topic_prefix, partitions=8) as fleet:
        first = fleet.start_worker(tmp_path / "first.log")
        fleet.start_worker(tmp_path / "second.log")
        fleet.play(lines[: len(lines) // 2])
        eventually(lambda: len(fleet.said()) > len(expected) // 5, 60.0, every_s=0.3)
        getattr(first, end)()
        fleet.play(lines[len(lines) // 2 :])

        assert expected == fleet.says(expected)


@pytest.mark.slow
def test_light_load_alone_raises_no_alert_through_a_broker(embedded_broker, topic_prefix, tmp_path):
    lines = list(read_lines(LIGHT))
    expected = said_by_replay(lines)
    with Fleet(embedded_broker.bootstrap_servers, topic_prefix) as fleet:
        fleet.start_worker(tmp_path / "worker.log")
        fleet.play(lines)

        assert expected == fleet.says(expected)
        assert fleet.values(fleet.topics.alerts) == []
