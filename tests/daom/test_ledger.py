"""What should have been said and what has been: compared to the byte."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.differing import NOTHING, Field, first_field
from daom.ledger import Kept, Rows, Scope, compare, named
from daom.published import Message

TOPICS = ("verdicts", "alerts")
NO_END = 2**40


def message(name, event_s=0.0, cell="m", topic="verdicts", key=b"k", headers=(), **more):
    value = {"id": name, "event_time_s": event_s, "cell": cell, **more}
    return Message(topic, key, json.dumps(value).encode(), tuple(headers))


def rows(*messages, partition=0):
    """Messages at offsets 0, 1, 2..."""
    found = Rows(TOPICS)
    for offset, each in enumerate(messages):
        found.add(each, partition, offset, 0.0)
    return found


def scope(**more):
    whole = {"ranges": {0: (0, NO_END)}, "said_before": {0: NO_END}}
    return Scope(**(whole | more))


def counts(found):
    return dict(found.counts)


def test_what_is_said_as_it_should_be_is_the_same_in_whatever_order():
    said = [message(str(number), number) for number in range(5)]

    found = compare(rows(*said), rows(*reversed(said)), scope())

    assert (found.same, found.repeats, counts(found), found.first) == (5, 0, {}, None)


def test_a_repeat_is_counted_and_one_that_differs_is_a_difference():
    right = [message("a"), message("b", 1.0)]

    found = compare(rows(*right), rows(*right, right[0]), scope())
    differing = compare(rows(*right), rows(*right, message("a", samples=1)), scope())

    assert (found.same, found.repeats, found.first) == (2, 1, None)
    assert (differing.same, differing.repeats, counts(differing)) == (1, 0, {"different": 1})
    assert differing.first[:3] == ("different", 0, 2)


def test_the_first_difference_is_the_earliest_by_event_time_whatever_its_kind():
    right = [message("a", 1.0), message("b", 2.0), message("c", 3.0)]
    written = [message("d", 2.5), message("c", 3.0, samples=1), message("a", 1.0)]

    found = compare(rows(*right), rows(*written), scope())

    assert counts(found) == {"missing": 1, "different": 1, "beyond": 1}
    assert found.first[:3] == ("missing", 1, None)


@pytest.mark.parametrize("change", ["topic", "key", "headers"])
def test_where_and_under_what_it_was_said_counts_too(change):
    changes = {"topic": "alerts", "key": b"other", "headers": (("schema", b"Alert/1"),)}
    right, written = message("a"), message("a", **{change: changes[change]})

    assert counts(compare(rows(right), rows(written), scope())) == {"different": 1}


def test_headers_of_those_who_pass_messages_on_do_not_count():
    traced = message("a", headers=(("traceparent", b"00-1"),))

    assert compare(rows(message("a")), rows(traced), scope()).same == 1


def test_what_is_due_from_where_no_checkpoint_has_come_to_is_not_missing_yet():
    right = rows(*(message(str(number), number) for number in range(4)))

    found = compare(right, rows(message("0", 0)), scope(said_before={0: 2}))

    assert (found.same, found.not_yet, counts(found)) == (1, 2, {"missing": 1})


def test_without_a_checkpoint_only_what_is_before_the_newest_that_was_said_is_missing():
    right = rows(*(message(str(number), number) for number in range(4)))

    found = compare(right, rows(message("2", 2)), scope(said_before={}))

    assert (found.same, found.not_yet, counts(found)) == (1, 1, {"missing": 2})


def test_outside_the_range_nothing_is_compared_and_nothing_is_beyond():
    said = [message(str(number), number) for number in range(6)]
    written = [*said[1:4], message("5", 5, samples=1), message("6", 6)]

    found = compare(rows(*said), rows(*written), scope(ranges={0: (1, 4)}))

    assert (found.same, counts(found)) == (3, {})


def test_what_cells_of_other_partitions_said_is_beyond_only_where_all_were_recomputed():
    written = rows(message("a"), message("b", cell="another"), message("c"))

    whole = compare(rows(message("a")), written, scope())
    part = compare(rows(message("a")), written, scope(is_whole=False))

    assert (counts(whole), counts(part)) == ({"beyond": 2}, {"beyond": 1})


def test_what_a_topic_may_have_deleted_is_not_missing():
    right = [message(str(number), number, key=b"k") for number in range(4)]
    never_seen = message("x", 9.0, key=b"another")
    kept = (Kept(is_cut=True), Kept())

    found = compare(rows(*right, never_seen), rows(right[2]), scope(kept=kept))

    # The newest of its key must be there.
    assert (found.same, found.gone, counts(found)) == (1, 3, {"missing": 1})


def test_what_a_topic_may_have_compacted_is_not_missing_but_the_newest_of_a_key_is():
    right = [message(str(number), number, key=b"k") for number in range(4)]
    never_seen = message("x", 0.0, key=b"another")
    kept = (Kept(is_compacted=True), Kept())

    found = compare(rows(*right, never_seen), rows(right[2]), scope(kept=kept))

    assert (found.same, found.gone, counts(found)) == (1, 2, {"missing": 2})


def test_where_the_log_is_cut_sameness_is_proof_and_a_difference_is_none():
    cut = scope(cut=[0])

    same = compare(rows(message("a")), rows(message("a")), cut)
    other = compare(rows(message("a")), rows(message("a", samples=1)), cut)

    assert (same.same, same.first) == (1, None)
    assert (other.unsure, other.first.is_sure) == (1, False)


def test_what_is_sure_comes_before_what_is_earlier():
    right, written = rows(message("a", 1.0)), rows()
    right.add(message("b", 2.0), 1, 0, 0.0)
    both = {0: (0, NO_END), 1: (0, NO_END)}

    found = compare(right, written, Scope(ranges=both, said_before={0: 9, 1: 9}, cut=[0]))

    assert (found.unsure, found.first) == (1, ("missing", 1, None, True))


def test_nothing_said_and_nothing_due_is_nothing():
    found = compare(rows(), rows(), scope(ranges={}, said_before={}))

    assert (found.same, found.repeats, counts(found), found.first) == (0, 0, {}, None)


def test_what_is_no_output_at_all_is_beyond():
    found = compare(rows(), rows(Message("verdicts", b"", b"\xff", ())), scope())

    assert counts(found) == {"beyond": 1}


def test_a_dead_letter_is_told_apart_by_its_record_and_its_reason():
    headers = (("schema", b"DeadLetter/1"), ("kind", b"late"), ("reason", b"by 9 s"))

    name = named(Message("deadletter", b"t/0/7", b"raw", headers))

    assert (name.id, math.isnan(name.event_s)) == ("t/0/7 late by 9 s", True)


names = st.lists(st.integers(0, 20), max_size=30)


@given(right=st.sets(st.integers(0, 20)), written=names, wrong=st.sets(st.integers(0, 20)))
def test_it_counts_as_sets_do(right, written, wrong):
    """Every message is one of: the same, different, missing, beyond; whatever comes how often."""
    said = [
        message(str(name), name, **({"samples": 1} if name in wrong else {})) for name in written
    ]

    found = compare(rows(*(message(str(name), name) for name in right)), rows(*said), scope())

    there = set(written)
    assert found.same == len(right & there - wrong)
    assert found.counts.get("missing", 0) == len(right - there)
    assert found.counts.get("beyond", 0) == sum(name not in right for name in written)
    assert found.counts.get("different", 0) == sum(name in right & wrong for name in written)
    assert found.repeats == sum(name in right - wrong for name in written) - found.same
    assert (found.first is None) == (right == there and not wrong & right)


@pytest.mark.parametrize(
    ("written", "right", "field"),
    [
        (b'{"a":1,"b":2}', b'{"a":1,"b":3}', Field("b", 2, 3)),
        (b'{"a":{"b":[1,2]}}', b'{"a":{"b":[1,3]}}', Field("a.b[1]", 2, 3)),
        (b'{"a":[1]}', b'{"a":[1,2]}', Field("a[1]", NOTHING, 2)),
        (b'{"a":1,"c":0}', b'{"a":1}', Field("c", 0, NOTHING)),
        (b'{"a":1.0}', b'{"a":1}', Field("a", 1.0, 1)),
        (b'{"a": 1}', b'{"a":1}', Field("value", '{"a": 1}', '{"a":1}')),
        (b"\xff", b"{}", Field("value", "\ufffd", "{}")),
    ],
)
def test_the_first_field_that_differs_is_named(written, right, field):
    assert first_field(Message("t", b"", written, ()), Message("t", b"", right, ())) == field


def test_topic_key_and_headers_are_fields_too():
    right = Message("t", b"k", b"{}", (("kind", b"late"),))

    assert first_field(right, right) is None
    assert first_field(right._replace(topic="u"), right) == Field("topic", "u", "t")
    assert first_field(right._replace(headers=()), right) == Field("header kind", NOTHING, "late")
