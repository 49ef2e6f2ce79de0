"""The main job with nothing stood in for: telemetry, Kafka, worker, bridge, Alertmanager."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connectors.player import shifted
from connectors.recordings import Line, record_time_s, write_recording
from daom.codec import decode, encode_json
from tests.fleet import LIGHT, OVERLOAD, Fleet, read_lines, said_by_replay
from tests.servers import Alertmanager, eventually

PANE_S = 10.0
FIRING_BY_S = 1_764_001_440.0
"""In the recording: the overload has made its alert fire, and has not ended."""
ENDS_S = 1_764_002_230.0
COMMAND_WITHIN_S = 30.0


def daom(fleet: Fleet, *arguments: object) -> str:
    """Run a command to its end; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "daom", *map(str, arguments)],
        env=fleet.environment,
        capture_output=True,
        check=True,
        text=True,
        timeout=COMMAND_WITHIN_S,
    )
    return done.stdout


@contextmanager
def bridge(fleet: Fleet, url: str, log: Path) -> Iterator[None]:
    """Run the bridge to the Alertmanager at ``url``."""
    command = [sys.executable, "-m", "daom", "bridge", "alertmanager", "--url", url]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=fleet.environment, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(COMMAND_WITHIN_S) == 0


def active(alertmanager: Alertmanager) -> list[dict[str, str]]:
    """The labels of what amtool shows as active."""
    command = ["amtool", f"--alertmanager.url={alertmanager.url}", "alert", "query", "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=COMMAND_WITHIN_S)
    return [alert["labels"] for alert in json.loads(done.stdout)]


def until_now() -> list[Line]:
    """The overload, moved so that it ends now, by whole panes so that it says the same."""
    by_s = (time.time() - ENDS_S) // PANE_S * PANE_S
    records = [decode(line.value).record for line in read_lines(OVERLOAD)]
    return [Line(n, encode_json(shifted(r, by_s))) for n, r in enumerate(records, start=1)]


def in_two(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """Return the recording until its alert must have fired, and the rest."""
    times_s = [record_time_s(decode(line.value).record) for line in lines]
    cut_s = max(times_s) - ENDS_S + FIRING_BY_S
    cut = next(number for number, time_s in enumerate(times_s) if time_s > cut_s)
    return lines[:cut], lines[cut:]


def play(fleet: Fleet, lines: list[Line], recording: Path) -> None:
    """Send ``lines`` as a user does: from a file."""
    write_recording(recording, (line.value for line in lines))
    daom(fleet, "play", recording)


def of_kind(said: dict[str, bytes], kind: str) -> set[bytes]:
    return {value for value in said.values() if json.loads(value)["type"] == kind}


@pytest.mark.slow
@pytest.mark.alertmanager
def test_an_overload_of_vllm_fires_one_alert_in_alertmanager_names_its_cause_and_resolves(
    kafka, topic_prefix, tmp_path
):
    lines = until_now()
    overload, rest = in_two(lines)
    at_first, expected = said_by_replay(overload), said_by_replay(lines)
    with (
        Alertmanager(tmp_path / "alertmanager") as alertmanager,
        Fleet(kafka.bootstrap_servers, topic_prefix) as fleet,
        bridge(fleet, alertmanager.url, tmp_path / "bridge.log"),
    ):
        fleet.start_worker(tmp_path / "worker.log")
        play(fleet, overload, tmp_path / "overload.jsonl.gz")
        assert fleet.says(at_first) == at_first
        fired = eventually(lambda: active(alertmanager), every_s=0.2)
        play(fleet, rest, tmp_path / "rest.jsonl.gz")
        eventually(lambda: not active(alertmanager), 40.0, every_s=0.2)

        assert [(a["alertname"], a["engine"], a["signal"]) for a in fired] == [
            ("LatencyDrift", "gpu-0", "ttft_s")
        ]
        assert fleet.says(expected) == expected
        [trigger] = map(json.loads, fleet.values(fleet.topics.rca))
        assert [cause["cause"] for cause in trigger["causes"]][:2] == [
            "traffic_surge",
            "queue_saturation",
        ]
        assert all(cause["evidence"] for cause in trigger["causes"])
        assert set(fleet.values(fleet.topics.thresholds)) == of_kind(expected, "threshold") != set()
        assert set(fleet.values(fleet.topics.suppressions)) == of_kind(expected, "suppression")
        assert of_kind(expected, "suppression")


def test_a_recording_is_moved_to_end_now_and_keeps_its_shape(embedded_broker, topic_prefix):
    with Fleet(embedded_broker.bootstrap_servers, topic_prefix) as fleet:
        printed = daom(fleet, "play", LIGHT, "--to-now")
        played = [decode(value).record for value in fleet.values(fleet.topics.telemetry)]

    recorded = [decode(line.value).record for line in read_lines(LIGHT)]
    moved_s = {
        round(record_time_s(new) - record_time_s(old), 3)
        for new, old in zip(played, recorded, strict=True)
    }
    assert printed == f"sent {len(recorded)} records to {fleet.topics.telemetry}\n"
    assert len(moved_s) == 1
    assert abs(max(map(record_time_s, played)) - time.time()) < COMMAND_WITHIN_S
