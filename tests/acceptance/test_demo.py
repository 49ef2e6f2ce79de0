"""``daom demo`` as somebody who has just installed DAOM runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ENDS_WITHIN_S = 90.0


class Demo(NamedTuple):
    """A demo that has ended."""

    code: int
    found: dict[str, Any]
    told: str


def demo(*arguments: str, **environment: str) -> Demo:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAOM_")}
    done = subprocess.run(
        [sys.executable, "-m", "daom", "demo", "--json", *arguments],
        env=kept | environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    return Demo(done.returncode, json.loads(done.stdout or "{}"), done.stderr)


def check_that_it_found_the_overload(found: dict[str, Any]) -> None:
    """One engine under overload drifts, alerts once and recovers; the rest is calm or muted."""
    drifts = {(drift["engine"], drift["signal"]): drift for drift in found["drifts"]}
    worst = drifts["gpu-0", "ttft_s"]
    assert ("gpu-1", "ttft_s") not in drifts
    assert worst["attribution"] == "mixed"
    assert worst["p99_s"] > 10.0 * worst["threshold_s"]

    moved = [alert for alert in found["alerts"] if alert["state"] != "pending"]
    assert [alert["state"] for alert in moved] == ["firing", "resolved"]
    labels = {"alertname": "LatencyDrift", "engine": "gpu-0", "signal": "ttft_s"}
    assert all(labels.items() <= alert["labels"].items() for alert in moved)

    assert {muted["rule"] for muted in found["muted"]} == {"few_engines", "same_incident"}
    [cause] = found["root_causes"]
    assert [c["cause"] for c in cause["causes"]][:2] == ["traffic_surge", "queue_saturation"]
    assert found["thresholds"]["ttft_s of gpu-0"][0]["why"] == "learned"
    assert found["verdicts"] > 1_000


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.alertmanager
def test_the_demo_ends_by_itself_and_a_real_alertmanager_held_its_alert():
    ended = demo()

    assert (ended.code, ended.told) == (0, "")
    check_that_it_found_the_overload(ended.found)
    alertmanager = ended.found["alertmanager"]
    [held] = alertmanager["seen_firing"]
    assert (alertmanager["real"], alertmanager["seen_resolved"]) == (True, True)
    assert (held["labels"]["alertname"], held["labels"]["engine"]) == ("LatencyDrift", "gpu-0")


@pytest.mark.slow
@pytest.mark.broker
def test_where_no_alertmanager_is_installed_the_demo_says_what_would_be_sent(tmp_path: Path):
    ended = demo("--speed", "150", PATH=str(tmp_path))

    assert (ended.code, ended.told) == (0, "")
    check_that_it_found_the_overload(ended.found)
    alertmanager = ended.found["alertmanager"]
    [would_be_sent] = alertmanager["would_be_sent"]
    assert not alertmanager["real"]
    assert "none is installed" in alertmanager["words"]
    assert would_be_sent["labels"]["alertname"] == "LatencyDrift"
    assert {"startsAt", "endsAt", "annotations"} <= would_be_sent.keys()
