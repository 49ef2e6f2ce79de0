"""Sources as a user meets them: ranges, copies of them, and whatever is wrong with them."""

import asyncio
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from connectors.recordings import read_lines
from daom.codec import decode
from tests.fleet import LIGHT, OVERLOAD, Fleet, several_cells
from tests.servers import eventually

DAY_S = 86_400
T0 = 1_764_000_000.0
UNTIL_S = T0 + 450.0
MODELS = ("llama-3.2-1b", "qwen3-32b")
UNUSABLE = ((b"llama-3.2-1b", b"{"), (b"qwen3-32b", None), (b"no cell", b"\xff\x00"))


def tick(time_s, schema="Tick/1"):
    return json.dumps({"schema": schema, "source": {"model": "m"}, "time_s": time_s})


def recording(path, *lines):
    path.write_text("".join(line + "\n" for line in lines))
    return path


# A topic


@pytest.fixture(scope="module")
def fleet(embedded_broker):
    """Two models on four partitions, and what cannot be used."""
    lines = several_cells(MODELS, UNTIL_S)
    with Fleet(embedded_broker.bootstrap_servers, f"sources-{os.getpid()}") as fleet:
        fleet.play(lines[: len(lines) // 2])
        fleet.send((key, value, 1_000 * int(UNTIL_S)) for key, value in UNUSABLE)
        fleet.play(lines[len(lines) // 2 :])
        yield fleet


@pytest.fixture
def topic(daom, fleet, monkeypatch):
    for name, value in fleet.environment.items():
        if name.startswith("DAOM_"):
            monkeypatch.setenv(name, value)
    return "topic:"


@pytest.fixture(scope="module")
def everything(fleet):
    """What a replay says of the topic."""
    return fleet.replayed()


def test_a_recording_of_a_topic_says_to_the_byte_what_the_topic_does(
    daom, topic, tmp_path, everything
):
    done = daom("record", topic, tmp_path / "copy.jsonl.zst")

    replayed = daom("replay", tmp_path / "copy.jsonl.zst", "--json")
    said, faults = everything
    assert (done.code, replayed.code) == (0, 0)
    assert replayed.out.encode().splitlines() == said
    assert sorted(map(reason, replayed.err.splitlines())) == sorted(map(reason, faults))


def reason(line):
    """What was wrong, without where it lies."""
    return line.partition(": ")[2]


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_number_of_processes_changes_nothing(daom, topic, everything, jobs):
    done = daom("replay", topic, "--json", "--jobs", jobs)

    assert (done.code, done.out.encode().splitlines()) == (0, everything[0])


def test_a_range_of_a_topic_is_recorded_alone(daom, topic, tmp_path):
    since_s, until_s = T0 + 100.0, T0 + 200.0

    done = daom(
        "record", topic, tmp_path / "part.jsonl", "--since", since_s, "--until", until_s, "--force"
    )

    assert (done.code, done.out) == (0, "")
    copied = [decode(line.value).record for line in read_lines(tmp_path / "part.jsonl")]
    assert all(since_s <= record.logged_s < until_s for record in copied)
    assert f"{len(copied)} records from topic:" in done.err


def test_shared_under_other_names_it_says_as_much(daom, topic, tmp_path, everything):
    secrets = (*MODELS, "gpu-0", "gpu-1")

    done = daom("record", topic, tmp_path / "shared.jsonl.gz", "--anonymise")

    text = gzip.decompress((tmp_path / "shared.jsonl.gz").read_bytes()).decode()
    replayed = daom("replay", tmp_path / "shared.jsonl.gz", "--json")
    assert not [secret for secret in secrets if secret in text]
    assert f"left out: {len(UNUSABLE)} records that cannot be used" in done.err
    assert len(replayed.out.splitlines()) == len(everything[0])


def test_two_ranges_of_a_topic_compare_as_those_of_a_recording_do(daom, topic, tmp_path):
    asked = ("--by", "time", "+0m/+3m", "+3m/+6m", "--model", MODELS[0], "--json")
    daom("record", topic, tmp_path / "copy.jsonl")

    of_topic = daom("compare", topic, *asked)

    assert of_topic.code == 0
    assert of_topic.out == daom("compare", tmp_path / "copy.jsonl", *asked).out


def test_labels_score_a_topic_as_they_score_its_recording(daom, topic, tmp_path):
    labels = tmp_path / "labels.yaml"
    labels.write_text(f"- {{start: {T0 + 200:.0f}, end: {T0 + 300:.0f}, kind: degradation}}\n")
    asked = ("--labels", labels, "--preset", "adwin", "--json")
    daom("record", topic, tmp_path / "copy.jsonl")

    of_topic, of_copy = (
        daom("evaluate", source, *asked) for source in (topic, tmp_path / "copy.jsonl")
    )

    assert (of_topic.code, of_copy.code) == (0, 0)
    scores = [re.sub(r'"(recording|name)": "[^"]*"', "", done.out) for done in (of_topic, of_copy)]
    assert scores[0].replace("topic:", "") == scores[1].replace(str(tmp_path / "copy.jsonl"), "")


def test_reading_writes_nothing_and_joins_no_group(daom, topic, fleet, tmp_path):
    before = kept_by(fleet)

    daom("replay", topic)
    daom("record", topic, tmp_path / "copy.jsonl")
    verified = daom("replay", topic, "--verify")

    assert kept_by(fleet) == before
    # No worker has ever run.
    assert verified.code == 3
    assert "could not be verified: nothing to compare" in verified.out


def kept_by(fleet):
    """The groups of a broker, and how long each log of the fleet is."""

    async def groups():
        admin = AIOKafkaAdminClient(**fleet.client)
        await admin.start()
        try:
            return await admin.list_consumer_groups()
        finally:
            await admin.close()

    names = (fleet.topics.telemetry, *fleet.topics.said)
    return asyncio.run(groups()), {name: len(fleet.values(name)) for name in names}


def test_a_range_without_data_could_not_be_judged_and_says_what_there_is(daom, topic):
    done = daom("replay", topic, "--since", "2031-01-01")

    assert (done.code, done.out) == (3, "")
    assert "holds no record in this range; the newest is of 2025-11-24" in done.err


@pytest.mark.parametrize("command", [["replay"], ["replay", "--verify"], ["record"], ["compare"]])
def test_a_missing_topic_is_one_clear_message(daom, topic, tmp_path, command):
    more = {"record": [tmp_path / "x.jsonl"], "compare": [LIGHT]}.get(command[0], [])

    done = daom(*command, "topic:nowhere", *more)

    assert (done.code, done.out) == (2, "")
    assert re.search("topic nowhere .*", done.err)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_cannot_be_verified(daom):
    done = daom("replay", LIGHT, "--verify")

    assert done.code == 2
    assert "--verify compares what a topic makes due" in done.err


# Whatever is wrong


def test_what_is_there_already_is_kept_unless_told(daom, tmp_path):
    file = recording(tmp_path / "kept.jsonl", "mine")

    refused = daom("record", LIGHT, file)
    assert (refused.code, file.read_text()) == (2, "mine\n")
    assert "name another file, or give --force" in refused.err

    assert daom("record", LIGHT, file, "--force").code == 0
    assert file.read_text() != "mine\n"


def test_a_salt_is_for_other_names(daom, tmp_path):
    done = daom("record", LIGHT, tmp_path / "x.jsonl", "--salt", "s")

    assert done.code == 2
    assert "--salt needs --anonymise" in done.err


def test_a_full_disk_leaves_no_half_a_recording(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "daom", "record", LIGHT, tmp_path / "x.jsonl"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"^daom: \S*x.jsonl: File too large$", done.stderr, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_a_recording_and_says_so(tmp_path):
    command = [sys.executable, "-m", "daom", "record", "-", tmp_path / "x.jsonl"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(tick(T0).encode() + b"\n")
        process.stdin.flush()
        eventually(lambda: list(tmp_path.iterdir()))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()

    assert process.returncode == 130
    assert said == f"daom: stopped; {tmp_path / 'x.jsonl'} has not been written\n"
    assert list(tmp_path.iterdir()) == []


def test_a_recording_cut_in_the_middle_of_a_line_gives_what_is_whole(daom, tmp_path):
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"\n".join(line.value for line in read_lines(LIGHT))[:-7])

    replayed = daom("replay", cut, "--json")
    copied = daom("record", cut, tmp_path / "copy.jsonl")

    lines = cut.read_bytes().splitlines()
    says = f"breaks off in the middle of line {len(lines)}"
    assert (replayed.code, copied.code) == (2, 2)
    assert says in replayed.err
    assert says in copied.err
    assert replayed.out.count("\n") > 50
    assert (tmp_path / "copy.jsonl").read_bytes().splitlines() == lines[:-1]


def test_a_gap_of_days_is_told(daom, tmp_path):
    file = recording(tmp_path / "gap.jsonl", tick(T0), tick(T0 + 2.5 * DAY_S))

    done = daom("replay", file)

    assert done.code == 0
    assert re.search(r"gap.jsonl:2: no record for 2.5 days, from 2025-11-24 \S+ to", done.err)


def test_of_two_schema_versions_the_one_that_is_known_is_used(daom, tmp_path):
    file = recording(tmp_path / "two.jsonl", tick(T0), tick(T0 + 1.0, "Tick/2"), tick(T0 + 2.0))

    done = daom("replay", file)

    assert done.code == 0
    assert re.search(r"two.jsonl:2: schema_version: .*Tick/2", done.err)
    assert "could not be used: 1 x schema_version" in done.err


@pytest.mark.parametrize(
    ("span", "says"),
    [
        (["--since", "yesterday"], "got 'yesterday'; allowed: ISO 8601"),
        (["--since", "2025-11-25", "--until", "2025-11-24"], "the range is empty"),
        (["--since", "1h", "--until", "2h"], "the range is empty"),
        (["--offsets", "0:1-2"], "a recording has no offsets"),
        (["--offsets", "x"], "--offsets: got 'x'"),
    ],
)
def test_a_range_that_means_nothing_is_refused(daom, span, says):
    done = daom("replay", OVERLOAD, *span)

    assert (done.code, done.out) == (2, "")
    assert says in done.err
