"""A record that cannot be used is kept with its reason and its place, and the stream goes on."""

import json

import pytest

from tests.daom.messages import GOOD, MISSING, changed, written
from tests.daom.stories import MODEL
from tests.streams.memory_log import MAX_MESSAGE_BYTES, TOPICS, VALUES, Log, folded, run

KEPT_BYTES = 512 * 2**10

MINE = json.loads(VALUES[0])["source"]
BAD = {
    "not_decodable": b"junk",
    "tombstone": None,
    "too_large": b"{" + b" " * MAX_MESSAGE_BYTES,
    "unknown_schema": written(changed(GOOD, "schema", "Weather/1")),
    "schema_version": written(changed(GOOD, "schema", "TelemetryBatch/2")),
    "missing_field": written(changed(GOOD, "source.model", MISSING)),
    "wrong_type": written(changed(GOOD, "requests.ttft_s", ["fast", 1.0])),
    "columns_unequal": written(changed(GOOD, "requests.ttft_s", [0.1])),
    "wrong_key": written(GOOD),
}
PARTLY_BAD = {
    "negative": changed(GOOD, "requests.ttft_s", [-1.0, 0.5]),
    "wrong_type": changed(GOOD, "gauges.kv_usage", "half"),
}


def dead_letters(log):
    letters = log.partition(TOPICS.dead_letters)
    return list(zip(letters, log.headers.get(TOPICS.dead_letters, []), strict=True))


def delivered(log):
    async def story():
        owner = log.owner()
        await log.deliver(owner)
        await owner.save()

    run(story())
    return dead_letters(log)


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_used_is_kept_with_kind_reason_and_place(kind):
    log = Log()
    log.write(*VALUES[:3], BAD[kind], *VALUES[3:])

    [(letter, headers)] = delivered(log)

    assert letter.key == b"t.telemetry/0/3"
    assert letter.value == (BAD[kind] or b"")[:KEPT_BYTES]
    assert headers.pop("reason").decode()
    assert headers == {
        "schema": b"DeadLetter/1",
        "kind": kind.encode(),
        "source_topic": b"t.telemetry",
        "source_partition": b"0",
        "source_offset": b"3",
        "source_bytes": str(len(BAD[kind] or b"")).encode(),
        "source_key": MODEL.encode(),
    }


def test_the_stream_goes_on_as_if_they_had_not_been_there():
    log = Log()
    for number, value in enumerate(VALUES):
        log.write(value, list(BAD.values())[number % len(BAD)])

    letters = delivered(log)

    said = [value for value in log.said() if b'"LimitReached"' not in value]
    assert said == folded(*VALUES)
    assert len(letters) == len(VALUES)
    assert log.acknowledged == list(range(2 * len(VALUES)))


@pytest.mark.parametrize("kind", PARTLY_BAD)
def test_what_is_good_in_a_record_is_used_and_its_faults_are_told(kind):
    log = Log()
    mine = changed(PARTLY_BAD[kind], "source", MINE | {"seq": 99})
    log.write(*VALUES, written(mine))

    [(letter, headers)] = delivered(log)

    assert (letter.value, headers["kind"]) == (written(mine), kind.encode())
    assert headers["reason"].startswith((b"requests.ttft_s[0]: got -1.0", b"gauges.kv_usage: got"))
    assert log.said() == folded(*VALUES, written(mine))


def test_each_fault_of_one_record_is_a_letter_of_its_own():
    log = Log()
    both = changed(PARTLY_BAD["negative"], "gauges.kv_usage", "half")
    log.write(written(changed(both, "source", MINE)))

    letters = delivered(log)

    assert {headers["kind"] for _, headers in letters} == {b"negative", b"wrong_type"}
    assert {letter.key for letter, _ in letters} == {b"t.telemetry/0/0"}


@pytest.mark.parametrize("bytes_over", [0, 1, 1_000])
def test_of_a_long_record_the_beginning_is_kept_and_its_length_told(bytes_over):
    log = Log()
    log.write(b"x" * (KEPT_BYTES + bytes_over))

    [(letter, headers)] = delivered(log)

    assert letter.value == b"x" * KEPT_BYTES
    assert headers["source_bytes"] == str(KEPT_BYTES + bytes_over).encode()


def test_a_record_without_a_key_is_told_without_one():
    log = Log()
    log.write(VALUES[0], cell=None)

    [(_, headers)] = delivered(log)

    assert (headers["kind"], "source_key" in headers) == (b"wrong_key", False)
    assert MODEL in headers["reason"].decode()


def test_a_dead_letter_fits_its_topic_whatever_the_record():
    [spec] = [s for s in TOPICS.specs(partitions=1) if s.name == TOPICS.dead_letters]

    assert int(spec.config["max.message.bytes"]) > 2 * KEPT_BYTES


def test_dead_letters_of_a_refold_are_the_same_again():
    log = Log()
    log.write(*VALUES[:3], b"junk", *VALUES[3:])

    async def story():
        await log.deliver(log.owner())
        await log.deliver(log.owner())

    run(story())
    first, second = dead_letters(log)

    assert first[0][1:] == second[0][1:]
    assert first[1] == second[1]
