import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.alert_book import (
    AlertBatch,
    AlertBook,
    BookSettings,
    Posting,
    TopicValue,
    WrittenAlert,
    decode_alert,
    decode_batch,
)
from daom.codec import encode_output
from daom.errors import MalformedRecord
from daom.events import Alert, AlertState, digest

T0 = 1_766_000_000.0
RESEND_S = 60.0
RETRY_S = 15.0


def alert(state: AlertState, at_s: float, began_s: float = 0.0, fingerprint: str = "f") -> Alert:
    """An alert whose episode began ``began_s`` after T0 and that changed ``at_s`` after T0."""
    return Alert(
        id=digest(fingerprint, state, float(at_s), float(began_s)),
        event_time_s=T0 + at_s,
        cell="llama",
        fingerprint=fingerprint,
        name="LatencyDrift",
        labels={"alertname": "LatencyDrift", "model": "llama", "engine": fingerprint},
        state=state,
        started_s=T0 + began_s,
    )


def book_of(*alerts: Alert, replicas: tuple[str, ...] = ("a",)) -> AlertBook:
    book = AlertBook(replicas)
    for record in alerts:
        book.apply(record)
    return book


def deliver(book: AlertBook, at_s: float, replica: str | None = None) -> list[str]:
    """Send all that is due, and say what it was: ``engine state``, with a * for a repeat."""
    postings = book.due(T0 + at_s, replica)
    book.sent(postings, T0 + at_s)
    return [f"{p.alert.fingerprint} {p.alert.state}{'*' if p.repeat else ''}" for p in postings]


# What is due when


def test_a_new_firing_alert_is_due_at_once_and_then_every_resend() -> None:
    book = book_of(alert("firing", 0))

    heard = {at_s: deliver(book, at_s) for at_s in (1, 2, 60, 61, 100, 121)}

    assert heard == {1: ["f firing"], 2: [], 60: [], 61: ["f firing*"], 100: [], 121: ["f firing*"]}


def test_a_firing_alert_ends_four_resends_from_now_unless_it_is_sent_again() -> None:
    book = book_of(alert("firing", 5))

    (posting,) = book.due(T0 + 10)

    assert (posting.starts_s, posting.ends_s) == (T0, T0 + 250)


def test_new_values_of_a_firing_alert_wait_for_the_next_repeat() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 0)

    book.apply(alert("firing", 10))

    assert (deliver(book, 10), book.due(T0 + 60)[0].alert.event_time_s) == ([], T0 + 10)


def test_a_resolve_is_due_at_once_and_is_repeated_for_a_quarter_of_an_hour() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 0)
    book.apply(alert("resolved", 30))

    times_s = [at_s for at_s in range(30, 2000, 10) if deliver(book, at_s)]

    assert times_s == list(range(30, 931, 60))


def test_a_resolve_ends_when_it_happened_however_often_it_is_repeated() -> None:
    book = book_of(alert("resolved", 30))

    ends_s = [posting.ends_s for at_s in (40, 400) for posting in book.due(T0 + at_s)]

    assert ends_s == [T0 + 30, T0 + 30]


def test_no_time_that_is_sent_lies_in_the_future_but_the_end_of_what_fires() -> None:
    """An event time ahead of the clock would keep a resolved alert firing."""
    book = book_of(alert("firing", 20, 10, "f"), alert("resolved", 20, 10, "g"))

    times = {p.alert.fingerprint: (p.starts_s - T0, p.ends_s - T0) for p in book.due(T0 + 5)}

    assert times == {"f": (5, 245), "g": (5, 5)}


def test_a_pending_alert_is_remembered_but_not_sent() -> None:
    book = book_of(alert("pending", 0))

    assert (list(book.alerts), deliver(book, 1), book.next_due_s(T0 + 1)) == (["f"], [], math.inf)


def test_a_pending_alert_does_not_hide_the_resolve_before_it() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 0)
    book.apply(alert("resolved", 10))
    book.apply(alert("pending", 20, 20))

    assert [deliver(book, at_s) for at_s in (21, 81)] == [["f resolved"], ["f resolved*"]]


def test_an_alert_that_fires_again_is_new() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 0)
    book.apply(alert("resolved", 10))
    deliver(book, 10)

    book.apply(alert("firing", 20, 20))

    assert deliver(book, 20) == ["f firing"]


def test_silence_resolves_nothing() -> None:
    book = book_of(alert("firing", 0))

    heard = {line for at_s in range(0, 100_000, 60) for line in deliver(book, at_s)}

    assert heard == {"f firing", "f firing*"}


# After a restart, or an outage of the topic


def test_a_resolve_that_was_written_while_the_bridge_was_away_is_sent() -> None:
    book = AlertBook(["a"])
    book.apply(alert("resolved", 0), written_s=T0 + 100)

    assert (deliver(book, 1000), deliver(book, 1061)) == (["f resolved"], [])


def test_an_old_resolve_of_an_alert_never_seen_firing_is_not_sent() -> None:
    book = AlertBook(["a"])
    book.apply(alert("resolved", 0), written_s=T0 + 100)

    assert (deliver(book, 1001), book.next_due_s(T0 + 1001)) == ([], math.inf)


def test_an_old_resolve_is_sent_once_to_who_still_believes_that_it_fires() -> None:
    """The topic could not be read for hours, while the book went on repeating what it knew."""
    book = book_of(alert("firing", 0), replicas=("a", "b"))
    deliver(book, 9_900, "a")
    deliver(book, 5_000, "b")

    book.apply(alert("resolved", 100))

    assert [deliver(book, at_s, "a") for at_s in (10_000, 10_060)] == [["f resolved"], []]
    assert deliver(book, 10_000, "b") == [], "its last firing has ended by itself"


def test_a_resolved_alert_is_forgotten_a_day_later() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 0)
    book.apply(alert("resolved", 10))
    deliver(book, 10)

    remembered = [(book.due(T0 + at_s), list(book.alerts))[1] for at_s in (86_410, 86_411)]

    assert remembered == [["f"], []]


def test_a_late_repeat_of_a_firing_is_no_news() -> None:
    """A worker that recovers writes its last outputs again."""
    book = book_of(alert("firing", 0), alert("resolved", 10))

    news = book.apply(alert("firing", 0), written_s=T0 + 5_000)

    assert (news, deliver(book, 5_000)) == (False, [])


def test_a_repeated_resolve_counts_from_when_it_was_first_written() -> None:
    book = AlertBook(["a"])
    book.apply(alert("resolved", 0), written_s=T0)
    book.apply(alert("resolved", 0), written_s=T0 + 500)

    assert (len(book.due(T0 + 900)), len(book.due(T0 + 901))) == (1, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(alert("firing", 20), alert("resolved", 20), id="same episode"),
        pytest.param(alert("resolved", 20), alert("firing", 20, 20), id="next episode"),
        pytest.param(alert("firing", 20), alert("pending", 30, 30), id="later event"),
    ],
)
def test_the_newer_of_two_records_wins_in_any_order(one: Alert, other: Alert) -> None:
    assert book_of(one, other).alerts == book_of(other, one).alerts == {"f": other}


# Replicas


def test_every_replica_hears_every_alert() -> None:
    book = book_of(alert("firing", 0), alert("firing", 0, 0, "g"), replicas=("a", "b"))

    heard = [(posting.replica, posting.alert.fingerprint) for posting in book.due(T0)]

    assert heard == [("a", "f"), ("a", "g"), ("b", "f"), ("b", "g")]


def test_a_replica_that_is_down_delays_no_other() -> None:
    book = book_of(alert("firing", 0), replicas=("up", "down"))

    up = [deliver(book, at_s, "up") for at_s in (0, 60, 120)]

    assert up == [["f firing"], ["f firing*"], ["f firing*"]]
    assert book.next_due_s(T0 + 121, "down") <= T0 + 121
    assert deliver(book, 121) == ["f firing"]


def test_a_refused_alert_is_not_sent_there_again_before_its_next_episode() -> None:
    book = book_of(alert("firing", 0), replicas=("a", "b"))
    book.rejected(book.due(T0, "a"), T0)
    again = [deliver(book, at_s, "a") for at_s in (1, 61, 10_000)]
    book.apply(alert("resolved", 10_010))
    at_the_end = [deliver(book, 10_010, replica) for replica in ("a", "b")]
    book.apply(alert("firing", 10_020, 10_020))

    assert again == [[], [], []]
    assert at_the_end == [[], ["f resolved"]]
    assert deliver(book, 10_020, "a") == ["f firing"]


def test_a_clock_that_is_set_back_silences_nothing() -> None:
    book = book_of(alert("firing", 0))
    deliver(book, 7_200)

    assert [deliver(book, at_s) for at_s in (3_600, 3_659, 3_660)] == [
        ["f firing*"],
        [],
        ["f firing*"],
    ]


def test_two_replicas_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"different names, got \['a', 'a'\]"):
        AlertBook(["a", "a"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resend_s": 0.0}, "resend_s must be more than 0 seconds, got 0.0"),
        ({"resolve_repeat_s": -1.0}, "resolve_repeat_s must be 0 or more, got -1.0"),
        ({"remember_s": math.nan}, "remember_s must be 0 or more, got nan"),
    ],
)
def test_settings_that_cannot_be_kept_are_an_error(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BookSettings(**wrong)


# Properties

states: st.SearchStrategy[AlertState] = st.sampled_from(["pending", "firing", "resolved"])
moments_s = st.integers(0, 3_000)


@st.composite
def histories(draw: st.DrawFn) -> list[Alert]:
    """What a few alerts went through, each in any order of states, at different times."""
    return [
        alert(draw(states), at_s, began_s=draw(st.integers(0, at_s)), fingerprint=fingerprint)
        for fingerprint in ("f", "g")
        for at_s in draw(st.lists(moments_s, unique=True, max_size=6))
    ]


def seen(book: AlertBook, now_s: float) -> tuple[list[Posting], float, dict[str, Alert]]:
    due = sorted(book.due(now_s), key=lambda posting: posting.alert.fingerprint)
    return due, book.next_due_s(now_s), dict(book.alerts)


@given(histories().flatmap(lambda h: st.tuples(st.just(h), st.permutations(h + h[:3]))), moments_s)
def test_any_order_with_repeats_ends_in_the_same_book(
    both: tuple[list[Alert], list[Alert]], at_s: int
) -> None:
    history, shuffled = both

    assert seen(book_of(*history), T0 + at_s) == seen(book_of(*shuffled), T0 + at_s)


@given(st.lists(st.integers(0, 11), min_size=1))
def test_a_firing_alert_is_sent_again_before_it_ends(failures: list[int]) -> None:
    """Whatever fails in between, for up to eleven retries in a row."""
    book = book_of(alert("firing", 0))
    now_s, ends_s = T0, math.inf

    for failed in failures:
        now_s = max(now_s, book.next_due_s(now_s)) + failed * RETRY_S
        (posting,) = book.due(now_s)
        assert now_s < ends_s
        book.sent([posting], now_s)
        ends_s = posting.ends_s


@given(histories(), st.lists(st.tuples(moments_s, st.booleans())))
def test_only_what_fired_or_resolved_is_sent_and_only_a_record_resolves(
    history: list[Alert], wakes: list[tuple[int, bool]]
) -> None:
    book = AlertBook(["a"])
    records = sorted(history, key=lambda a: a.event_time_s)
    for at_s, arrives in sorted(wakes):
        if arrives and records:
            book.apply(records.pop(0))
        for posting in book.due(T0 + at_s):
            assert posting.alert in history
            assert posting.alert.state != "pending"
            assert (posting.alert.state == "firing") == (posting.ends_s > T0 + at_s)
        deliver(book, at_s)


@given(histories(), st.lists(st.tuples(moments_s, st.sampled_from(["a", "b", "none"]))))
def test_something_is_due_exactly_when_the_book_says_so(
    history: list[Alert], wakes: list[tuple[int, str]]
) -> None:
    book = book_of(*history, replicas=("a", "b"))
    for at_s, replica in wakes:
        now_s = T0 + at_s
        for name in ("a", "b"):
            next_s = book.next_due_s(now_s, name)
            assert bool(book.due(now_s, name)) == (next_s <= now_s)
            if now_s < next_s < math.inf:
                assert book.due(next_s, name)
        if replica != "none":
            deliver(book, at_s, replica)
            assert book.next_due_s(now_s, replica) > now_s


# The values of the topic


def test_a_batch_keeps_its_order_and_counts_what_it_cannot_use() -> None:
    first, second = alert("firing", 0), alert("resolved", 10)
    values = [
        TopicValue("offset 0", encode_output(first), T0 + 1),
        TopicValue("offset 1", None, T0 + 2),
        TopicValue("offset 2", b"{", T0 + 3),
        TopicValue("offset 3", b"null", T0 + 4),
        TopicValue("offset 4", encode_output(second), None),
    ]

    batch = decode_batch(values)

    assert batch.alerts == (WrittenAlert(first, T0 + 1), WrittenAlert(second, T0 + 10))
    assert batch.malformed == 2
    assert batch.fault.startswith("offset 2: not an output of DAOM")


def test_batches_join_in_their_order() -> None:
    one = AlertBatch((WrittenAlert(alert("firing", 0), T0),), 0, "")
    two = AlertBatch((WrittenAlert(alert("resolved", 1), T0),), 2, "bad")

    assert AlertBatch.joined([one, two]) == AlertBatch(one.alerts + two.alerts, 2, "bad")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param(b"", "not_decodable", id="empty"),
        pytest.param(b'{"type":"alert","x":' + b"[" * 100_000, "not_decodable", id="deep"),
        pytest.param(
            encode_output(alert("firing", -T0 - 1)), "time_out_of_range", id="before 1970"
        ),
        pytest.param(encode_output(alert("firing", 1e12)), "time_out_of_range", id="milliseconds"),
    ],
)
def test_a_value_that_is_no_alert_is_named(value: bytes, kind: str) -> None:
    with pytest.raises(MalformedRecord) as error:
        decode_alert(value)

    assert error.value.kind == kind
