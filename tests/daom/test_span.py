"""Which part of a log is meant, as people write it."""

import pytest

from daom.errors import ConfigError
from daom.span import Moment, Offsets, Span, Times, parse_moment, parse_offsets

NEWEST_S = 1_766_000_000.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", Moment(back_s=604_800.0)),
        ("1h30m", Moment(back_s=5_400.0)),
        ("1766000000.5", Moment(time_s=1_766_000_000.5)),
        ("2026-11-30T12:00:00Z", Moment(time_s=1_796_040_000.0)),
        ("2026-11-30", Moment(time_s=1_795_996_800.0)),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_moment_is_a_time_or_a_duration_back(text, moment):
    assert parse_moment(text) == moment


def test_a_duration_counts_from_the_newest_record():
    span = Span(since=parse_moment("7d"), until=parse_moment("1h"))

    assert span.times(NEWEST_S) == Times(NEWEST_S - 604_800.0, NEWEST_S - 3_600.0)
    assert span.needs_newest


def test_times_need_no_newest_record():
    span = Span(since=parse_moment("100"), until=parse_moment("200.5"))

    assert (span.times(), span.needs_newest) == (Times(100.0, 200.5), False)


@pytest.mark.parametrize(("since", "until"), [("200", "100"), ("100", "100"), ("1h", "1h")])
def test_a_range_that_ends_before_it_begins_is_refused(since, until):
    with pytest.raises(ConfigError, match="the range is empty: it begins"):
        Span(since=parse_moment(since), until=parse_moment(until))


def test_a_duration_may_turn_out_to_begin_after_the_end():
    span = Span(since=parse_moment("1h"), until=Moment(time_s=NEWEST_S - 7_200.0))

    with pytest.raises(ConfigError, match="the range is empty"):
        span.times(NEWEST_S)


def test_offsets_are_of_partitions_and_either_end_may_be_left_out():
    found = parse_offsets(["0:100-200", "1:100-", "2:-200", "3", "4:"])

    everything = Offsets(None, None)
    assert found == {
        0: Offsets(100, 200),
        1: Offsets(100, None),
        2: Offsets(None, 200),
        3: everything,
        4: everything,
    }


@pytest.mark.parametrize("text", ["", "x", "0:5", "0:1-2-3", "-1:2-3", "0:-1--2"])
def test_offsets_that_say_nothing_are_refused_with_what_is_allowed(text):
    with pytest.raises(ConfigError, match=r"got .*; allowed: PARTITION or PARTITION:FROM-UNTIL"):
        parse_offsets([text])


def test_a_partition_has_one_range():
    with pytest.raises(ConfigError, match="partition 0 is given twice"):
        parse_offsets(["0:1-2", "0:5-6"])


def test_offsets_that_hold_nothing_are_refused():
    with pytest.raises(ConfigError, match="offsets of partition 2: got 5-5"):
        Span(offsets={2: Offsets(5, 5)})


def test_offsets_and_times_exclude_another():
    with pytest.raises(ConfigError, match="exclude another"):
        Span(since=Moment(time_s=1.0), offsets={0: Offsets()})
