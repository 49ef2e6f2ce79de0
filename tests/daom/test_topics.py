import math
from typing import Any

import pytest

from daom.codec import DEFAULT_MAX_BYTES
from daom.errors import ConfigError
from daom.events import (
    Alert,
    AuditEntry,
    DriftVerdict,
    Output,
    RcaTrigger,
    Series,
    SloThreshold,
    Suppression,
)
from daom.topics import Topics, TopicSpec, dead_letter_key

TOPICS = Topics()
SERIES = Series(model="llama", engine="host-3/0", signal="ttft_s")
COMMON: dict[str, Any] = {"id": "1", "event_time_s": 0.0, "cell": "llama"}
NAMED: dict[str, Any] = {"fingerprint": "f00d", "name": "LatencyDrift", "labels": {}}

VERDICT = DriftVerdict(
    **COMMON, series=SERIES, samples=0, kl_nats=None, p99_s=None, threshold_s=None, drifting=False
)
THRESHOLD = SloThreshold(**COMMON, series=SERIES, threshold_s=1.0, previous_s=None, why="learned")
AUDIT = AuditEntry(
    **COMMON,
    series=SERIES,
    what="threshold",
    who="daom",
    why="learned",
    before=None,
    after=1.0,
    previous_hash="",
    hash="",
)
ALERT = Alert(**COMMON, **NAMED, state="firing", started_s=0.0)
SUPPRESSION = Suppression(**COMMON, **NAMED, rule="cooldown", why="", until_s=None)
RCA = RcaTrigger(**COMMON, **NAMED, onset_s=0.0, causes=())


@pytest.mark.parametrize(
    ("output", "topic", "key"),
    [
        (VERDICT, "daom.verdicts", b"llama|host-3/0|ttft_s"),
        (THRESHOLD, "daom.thresholds", b"llama|host-3/0|ttft_s"),
        (AUDIT, "daom.audit", b"llama|host-3/0|ttft_s"),
        (ALERT, "daom.alerts", b"f00d"),
        (SUPPRESSION, "daom.suppressions", b"f00d"),
        (RCA, "daom.rca", b"f00d"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | bytes) else None,
)
def test_every_output_has_its_topic_and_its_key(output: Output, topic: str, key: bytes) -> None:
    assert TOPICS.topic_of(output) == (topic, key)


def test_a_dead_letter_is_named_after_where_the_record_lies() -> None:
    assert dead_letter_key("daom.telemetry", 3, 17) == b"daom.telemetry/3/17"


def specs(**settings: Any) -> dict[str, TopicSpec]:
    made = Topics("p").specs(partitions=4, **settings)
    return {spec.name.removeprefix("p."): spec for spec in made}


def test_the_topics_and_what_they_clean_are_those_of_the_contract() -> None:
    policies = {name: spec.config["cleanup.policy"] for name, spec in specs().items()}

    assert policies == {
        "telemetry": "delete",
        "verdicts": "delete",
        "thresholds": "compact",
        "alerts": "compact,delete",
        "suppressions": "delete",
        "rca": "delete",
        "audit": "delete",
        "deadletter": "delete",
        "checkpoints": "compact",
    }


def test_a_checkpoint_lies_in_the_partition_of_its_telemetry() -> None:
    assert specs()["checkpoints"].partitions == specs()["telemetry"].partitions == 4


def test_telemetry_keeps_the_producers_timestamps() -> None:
    assert specs()["telemetry"].config["message.timestamp.type"] == "CreateTime"


def test_the_largest_record_fits_the_log_and_so_does_its_dead_letter() -> None:
    longest = {
        name: int(spec.config["max.message.bytes"])
        for name, spec in specs().items()
        if "max.message.bytes" in spec.config
    }

    assert DEFAULT_MAX_BYTES < longest["telemetry"] < longest["deadletter"]
    assert longest["checkpoints"] == 16 * 2**20


@pytest.mark.parametrize(
    ("retention_s", "retention_ms", "segment_ms"),
    [(3_600.0, "3600000", "3600000"), (864_000.0, "864000000", "86400000"), (math.inf, "-1", None)],
)
def test_no_segment_outlives_the_retention(
    retention_s: float, retention_ms: str, segment_ms: str | None
) -> None:
    config = specs(telemetry_retention_s=retention_s)["telemetry"].config

    assert config["retention.ms"] == retention_ms
    assert config["segment.ms"] == segment_ms or segment_ms is None


def test_three_copies_make_a_write_wait_for_two() -> None:
    assert {s.config["min.insync.replicas"] for s in specs(replication_factor=3).values()} == {"2"}
    assert not any("min.insync.replicas" in s.config for s in specs().values())


@pytest.mark.parametrize("prefix", ["", "da om", "dåom", "a/b", "x" * 201])
def test_a_prefix_that_kafka_refuses_is_named(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"topic prefix: got .*allowed"):
        Topics(prefix)


def test_counts_and_retentions_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"partitions=0.*1 or more"):
        TOPICS.specs(partitions=0)
    with pytest.raises(ValueError, match=r"retention of 0.0 s"):
        TOPICS.specs(partitions=1, audit_retention_s=0.0)
