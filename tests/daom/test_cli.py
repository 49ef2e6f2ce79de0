"""The commands as a user meets them: what they print, where, and how they exit."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from connectors.recordings import write_recording
from daom.cli import main
from daom.config import Config, config_yaml
from tests.bad_lines import kinds, with_bad_lines
from tests.fleet import LIGHT, OVERLOAD
from tests.kafka_servers import REPOSITORY

BURSTGPT = REPOSITORY / ".." / "shared" / "data" / "burstgpt_vllm_replay"
DAOM = (sys.executable, "-m", "daom")


def inner(command):
    """The commands of a group by name; none of a command that is no group."""
    if not isinstance(command, click.Group):
        return {}
    return {name: command.get_command(None, name) for name in command.list_commands(None)}


def commands(command=main, path=()):
    """Every command and group, as the words that call it."""
    yield path
    for name, found in inner(command).items():
        yield from commands(found, (*path, name))


def command_at(path):
    found = main
    for name in path:
        found = inner(found)[name]
    return found


# Help


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_says_what_every_command_is_for_and_shows_an_example(daom, path):
    done = daom(*path, "--help")
    command = command_at(path)

    assert (done.code, done.err) == (0, "")
    if isinstance(command, click.Group):
        assert all(name in done.out for name in inner(command))
    else:
        assert re.search(rf"Examples?: .*\bdaom {' '.join(path)}\b", done.out, re.DOTALL)


def test_the_module_and_the_script_are_one_command():
    done = subprocess.run([*DAOM, "--version"], capture_output=True, check=True, text=True)

    assert done.stdout.startswith("daom, version ")


@pytest.mark.parametrize("arguments", [["nope"], ["replay"], ["replay", "x", "--nope"], ["config"]])
def test_wrong_usage_exits_with_2_and_says_how_it_is_used(daom, arguments):
    done = daom(*arguments)

    assert (done.code, done.out) == (2, "")
    assert "Usage: " in done.err


# Replay


def test_replay_of_light_load_is_json_lines_and_raises_no_alert(daom):
    done = daom("replay", LIGHT, "--json")
    said = [json.loads(line) for line in done.out.splitlines()]

    assert (done.code, done.err) == (0, "")
    assert len(said) > 100
    assert all({"type", "id", "event_time_s"} <= output.keys() for output in said)
    assert Counter(output["type"] for output in said).keys() == {"verdict"}
    assert len({output["id"] for output in said}) == len(said)


def test_replay_of_the_overload_shows_drift_alert_threshold_and_cause(daom):
    done = daom("replay", OVERLOAD)

    assert done.code == 0
    for row in (r"gpu-0 .*ttft_s .*1\d/\d+", r"gpu-1 .*ttft_s .* 0/\d+", r"\(fleet\) .*e2e_s "):
        assert re.search(row, done.out)
    for event in (
        r"threshold ttft_s of gpu-0: - -> 0\.\d+ s \(learned\)",
        r"firing +LatencyDrift ttft_s gpu-0 critical",
        r"resolved LatencyDrift ttft_s gpu-0",
        r"look at +LatencyDrift ttft_s gpu-0 .*traffic_surge .*queue_saturation",
        r"muted +LatencyDrift e2e_s gpu-0 .*same_incident",
        r"8971 records, 1 alerts fired",
    ):
        assert re.search(event, done.out)


def test_replay_speaks_in_the_order_of_event_time(daom):
    times_s = [
        json.loads(line)["event_time_s"]
        for line in daom("replay", OVERLOAD, "--json").out.splitlines()
    ]

    assert times_s == sorted(times_s)


def test_replay_reads_standard_input(daom):
    piped = subprocess.run(
        [*DAOM, "replay", "-", "--json"],
        input=subprocess.run(["gzip", "-dc", LIGHT], capture_output=True, check=True).stdout,
        capture_output=True,
        check=True,
    )

    assert piped.stdout.decode() == daom("replay", LIGHT, "--json").out


@pytest.mark.parametrize("preset", ["sits2026", "adwin"])
def test_replay_judges_by_the_preset_it_is_told(daom, tmp_path, preset):
    signals = {"ttft_s": {"slo_s": 0.5}}
    settings = tmp_path / "daom.yaml"
    settings.write_text(yaml.safe_dump({"signals": signals}))

    told = daom("replay", LIGHT, "--json", "--config", settings, "--preset", preset)

    assert told.code == 0
    assert told.out != daom("replay", LIGHT, "--json", "--config", settings).out


def test_an_unknown_preset_is_refused_with_the_known_ones(daom):
    done = daom("replay", LIGHT, "--preset", "nope")

    assert (done.code, done.out) == (2, "")
    for word in ("nope", "default", "sits2026", "adwin", "kswin", "page_hinkley"):
        assert word in done.err


def test_a_preset_that_lacks_its_setting_is_refused_naming_it(daom):
    done = daom("replay", LIGHT, "--preset", "sits2026")

    assert (done.code, done.out) == (2, "")
    assert "signals.ttft_s.slo_s is not set" in done.err
    assert "Traceback" not in done.err


def test_a_missing_recording_is_one_clear_message(daom, tmp_path):
    missing = tmp_path / "missing.jsonl"

    done = daom("replay", missing, "--json")

    assert done == (2, "", f"daom: {missing}: No such file or directory\n")


def test_a_recording_that_breaks_off_is_told_after_what_it_held(daom, tmp_path):
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(LIGHT.read_bytes()[:20_000])

    done = daom("replay", cut, "--json")

    assert done.code == 2
    assert done.out
    assert re.fullmatch(
        rf"daom: {re.escape(str(cut))}: the compressed stream ends too early, .*\n", done.err
    )


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_closed_pipe_is_no_traceback(arguments):
    replaying = subprocess.Popen(
        [*DAOM, "replay", OVERLOAD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert replaying.stdout is not None
    first = replaying.stdout.readline()
    replaying.stdout.close()

    assert first
    assert replaying.wait(30.0) in {0, 1}
    assert replaying.stderr.read().strip() == b""


# Replay of what producers get wrong


@pytest.fixture(scope="module")
def bad_recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "bad.jsonl.gz"
    write_recording(path, (line.value for line, _ in with_bad_lines()))
    return path


def test_each_bad_line_is_one_line_of_its_own_with_place_and_kind(daom, bad_recording):
    done = daom("replay", bad_recording, "--json")

    expected = [
        f"{bad_recording}:{line.number}: {kind}: " for line, kind in with_bad_lines() if kind
    ]
    told = done.err.splitlines()
    assert done.code == 0
    for line, beginning in zip(told, expected, strict=False):
        assert line.startswith(beginning)
        assert len(line) > len(beginning)
    assert told[len(expected) :] == [
        f"could not be used: {count} x {kind}"
        for kind, count in sorted(kinds(with_bad_lines()).items())
    ]


def test_bad_lines_change_nothing_of_what_is_said_of_the_good_ones(daom, bad_recording, tmp_path):
    good = tmp_path / "good.jsonl"
    usable = {None, "negative"}
    write_recording(good, (line.value for line, kind in with_bad_lines() if kind in usable))

    said = daom("replay", bad_recording, "--json").out.splitlines()

    of_limits = [line for line in said if "LimitReached" in line]
    assert [line for line in said if line not in of_limits] == (
        daom("replay", good, "--json").out.splitlines()
    )
    assert {json.loads(line)["labels"]["limit"] for line in of_limits} == {"message_bytes"}


def test_what_was_sent_twice_or_late_is_counted_at_the_end(daom, bad_recording):
    done = daom("replay", bad_recording)

    assert "duplicate batches: 1\n" in done.out
    assert "late samples: 2\n" in done.out


# Configuration


BAD_SETTINGS = {
    "wrong type": ("alerts: {pending_s: soon}", "alerts.pending_s", "'soon'", "number"),
    "out of range": ("kafka: {partitions: 0}", "kafka.partitions", "got 0", "equal to 1"),
    "unknown preset": ("preset: clever", "preset", "'clever'", "'page_hinkley'"),
    "unknown field": ("alerts: {pendings: 3}", "alerts.pendings", "unknown", "pending_s"),
    "unknown section": ("alarms: {}", "alarms", "unknown", "alerts"),
    "no stratum": (
        "signals: {a: {workload_base: 3}}",
        "signals.a",
        "workload_base=3",
        "a power of 2",
    ),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_a_bad_setting_is_one_message_with_file_field_value_and_what_is_allowed(
    daom, tmp_path, name
):
    text, *parts = BAD_SETTINGS[name]
    settings = tmp_path / "bad.yaml"
    settings.write_text(text)

    done = daom("config", "check", settings)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"daom: {settings}: ")
    assert done.err.count("\n") == 1
    assert all(part in done.err for part in parts)
    assert daom("replay", LIGHT, "--config", settings) == done


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not YAML"), ("- 1", "a map of sections is needed"), (None, "cannot be read")],
)
def test_a_file_that_is_no_configuration_is_one_message(daom, tmp_path, text, says):
    settings = tmp_path / "bad.yaml"
    if text is not None:
        settings.write_text(text)

    done = daom("config", "check", settings)

    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(f"daom: {settings}: {says}") or says in done.err


def test_what_the_plugin_would_refuse_is_refused_by_the_check(daom, tmp_path):
    settings = tmp_path / "daom.yaml"
    settings.write_text("probe: {engin: blue}")

    done = daom("config", "check", settings)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"daom: {settings}: probe: ")
    assert "`engin`" in done.err


def test_a_valid_file_is_said_to_be_valid(daom, tmp_path):
    settings = tmp_path / "daom.yaml"
    settings.write_text("alerts: {pending_s: 30}")

    assert daom("config", "check", settings) == (0, f"{settings}: valid\n", "")


def test_what_is_shown_is_valid_and_gives_the_same_configuration(daom, tmp_path, monkeypatch):
    monkeypatch.setenv("DAOM_ALERTS__PENDING_S", "30")
    shown = daom("config", "show").out
    monkeypatch.delenv("DAOM_ALERTS__PENDING_S")
    settings = tmp_path / "daom.yaml"
    settings.write_text(shown)

    assert "pending_s: 30.0" in shown
    assert daom("config", "show", "--config", settings).out == shown
    assert daom("config", "check", "--config", settings).code == 0


def test_the_schema_takes_the_defaults_and_refuses_what_the_configuration_refuses(daom):
    schema = json.loads(daom("config", "schema").out)
    validator = jsonschema.Draft202012Validator(schema)

    validator.check_schema(schema)
    assert list(validator.iter_errors(yaml.safe_load(config_yaml(Config())))) == []
    assert not validator.is_valid({"alerts": {"pendings": 3}})
    assert not validator.is_valid({"kafka": {"partitions": 0}})


# Topics


@pytest.mark.broker
def test_topics_are_made_kept_described_and_missed(
    daom, embedded_broker, topic_prefix, monkeypatch
):
    monkeypatch.setenv("DAOM_KAFKA__TOPIC_PREFIX", topic_prefix)
    at = ("--brokers", embedded_broker.bootstrap_servers)

    missed = daom("topics", "describe", *at)
    made = daom("topics", "create", "--partitions", "3", *at)
    kept = daom("topics", "create", "--partitions", "3", *at)
    differing = daom("topics", "create", "--partitions", "4", *at)
    described = daom("topics", "describe", "--json", *at)

    assert f"missing: {topic_prefix}.alerts" in missed.err
    assert (made.code, made.err) == (0, "")
    assert (kept.code, kept.out) == (0, made.out.replace("created ", "kept    "))
    assert f"{topic_prefix}.telemetry has 3 partitions; 4 were asked for" in differing.err
    rows = json.loads(described.out)
    assert described.code == 0
    assert {row["name"] for row in rows} == set(re.findall(r"created (\S+)", made.out))
    assert {row["partitions"] for row in rows} == {3}


def test_without_a_broker_it_could_not_be_judged(daom):
    done = daom("topics", "describe", "--brokers", "127.0.0.1:1")

    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("daom: no Kafka broker answers: 127.0.0.1:1")
    assert done.err.count("\n") == 1


# Conversion


@pytest.mark.skipif(not BURSTGPT.is_dir(), reason="needs the BurstGPT replay")
def test_a_converted_load_is_a_recording_that_replays(daom, tmp_path):
    recording = tmp_path / "load.jsonl.gz"

    made = daom("convert", "burstgpt", BURSTGPT, recording, "--scales", "100")
    replayed = daom("replay", recording, "--json")

    assert made.code == 0
    assert re.fullmatch(rf"{re.escape(str(recording))}: \d+ records\n", made.out)
    assert (replayed.code, replayed.err) == (0, "")
    assert replayed.out.count('"verdict"') > 100


def test_what_is_no_load_is_refused_before_anything_is_written(daom, tmp_path):
    recording = tmp_path / "load.jsonl.gz"

    wrong = daom("convert", "burstgpt", tmp_path, recording, "--scales", "much")
    missing = daom("convert", "burstgpt", tmp_path / "nowhere", recording)
    empty = daom("convert", "burstgpt", tmp_path, recording)

    assert (wrong.code, missing.code, empty.code) == (2, 2, 2)
    assert "got 'much'; such as 100,100,1500 is needed" in wrong.err
    assert str(tmp_path) in empty.err
    assert not Path(recording).exists()
