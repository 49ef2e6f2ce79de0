"""The configurations to start from are valid, by the programs that read them."""

import subprocess
from pathlib import Path

import pytest

from daom.config import load_config

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_workers_configuration_is_valid():
    config = load_config(DEPLOY / "daom.yaml", {})

    assert config.kafka.replication_factor == 3
    assert list(config.signals) == ["ttft_s", "itl_s", "e2e_s"]


@pytest.mark.alertmanager
def test_alertmanagers_configuration_is_valid():
    checked = subprocess.run(
        ["amtool", "check-config", DEPLOY / "alertmanager.yml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr
