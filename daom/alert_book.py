"""What every Alertmanager replica must be told, and when: the alert topic as a schedule.

Alertmanager forgets: an alert that nobody repeats ends by itself, and a resolve that got lost
leaves it firing until then. So the book does as Prometheus does: it repeats what fires, tells a
resolve several times, and keeps a record of deliveries for each replica, because replicas share
silences and notifications but not alerts. Pure: time is an argument, in Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from daom.codec import MAX_UNIX_S, decode_output
from daom.errors import MalformedRecord
from daom.events import Alert, AlertState

ENDS_AFTER_RESENDS: Final = 4
"""A firing alert ends after so many resend intervals: three sends may fail, the alert stays."""

_STATE_ORDER: Final[Mapping[AlertState, int]] = MappingProxyType(
    {"pending": 0, "firing": 1, "resolved": 2}
)


@dataclass(frozen=True, slots=True)
class BookSettings:
    """How often alerts are repeated; the defaults are those of Prometheus.

    Attributes:
        resend_s: Seconds between two sends of the same alert to the same replica.
        resolve_repeat_s: For how many seconds after it was written a resolve is repeated.
        remember_s: For how many seconds after it was written an alert that no longer fires is
            remembered, so that a late repeat of its firing is not taken for news.

    Raises:
        ValueError: If ``resend_s`` is not positive, or one of the others is negative.
    """

    resend_s: float = 60.0
    resolve_repeat_s: float = 900.0
    remember_s: float = 86_400.0

    def __post_init__(self) -> None:
        if not self.resend_s > 0.0:
            raise ValueError(f"resend_s must be more than 0 seconds, got {self.resend_s}")
        if not self.resolve_repeat_s >= 0.0:
            raise ValueError(f"resolve_repeat_s must be 0 or more, got {self.resolve_repeat_s}")
        if not self.remember_s >= 0.0:
            raise ValueError(f"remember_s must be 0 or more, got {self.remember_s}")


DEFAULT_SETTINGS: Final = BookSettings()


@dataclass(frozen=True, slots=True)
class Posting:
    """One alert as one replica must hear it now.

    Attributes:
        replica: Name of the replica, as the book was given it.
        alert: The alert, firing or resolved.
        starts_s: When it began, Unix seconds; never after the time of sending.
        ends_s: When it ended, or, while it fires, when it ends unless it is sent again.
        repeat: Whether the replica has heard of this state of the alert before.
    """

    replica: str
    alert: Alert
    starts_s: float
    ends_s: float
    repeat: bool = False


class _Held(NamedTuple):
    alert: Alert
    written_s: float

    @property
    def order(self) -> tuple[float, float, int, str]:
        """Which of two records is the newer one, whatever the order they come in.

        At one event time the later episode wins, and within an episode the later state.
        """
        alert = self.alert
        return alert.event_time_s, alert.started_s, _STATE_ORDER[alert.state], alert.id


class _Delivery(NamedTuple):
    """The last that a replica took, or refused, of one alert."""

    state: AlertState
    started_s: float
    sent_s: float
    ends_s: float
    rejected: bool

    def is_of(self, alert: Alert) -> bool:
        """Whether it told of ``alert``'s episode and state; its values may have changed since."""
        return (self.state, self.started_s) == (alert.state, alert.started_s)

    def believed_s(self) -> float:
        """Until when the replica takes the alert for firing, Unix seconds."""
        return self.ends_s if self.state == "firing" and not self.rejected else -math.inf


class AlertBook:
    """The last state of every alert, and what each replica was told of it.

    Records may come in any order and more than once; the newest by event time counts. Only a
    record resolves an alert: silence of the topic never does. Delivery is at least once: what
    was not reported by ``sent`` stays due, for each replica on its own.

    >>> book = AlertBook(["a", "b"])
    >>> labels = {"alertname": "LatencyDrift", "model": "llama"}
    >>> book.apply(Alert(id="1", event_time_s=100.0, cell="llama", fingerprint="f", labels=labels,
    ...                  name="LatencyDrift", state="firing", started_s=90.0))
    True
    >>> [(posting.replica, posting.ends_s) for posting in book.due(100.0)]
    [('a', 340.0), ('b', 340.0)]
    >>> book.sent(book.due(100.0, "a"), 100.0)
    >>> [posting.replica for posting in book.due(130.0)], book.next_due_s(130.0, "a")
    (['b'], 160.0)
    """

    def __init__(self, replicas: Sequence[str], settings: BookSettings = DEFAULT_SETTINGS) -> None:
        """Open an empty book for ``replicas``.

        Raises:
            ValueError: If two replicas have one name.
        """
        if len(set(replicas)) != len(replicas):
            raise ValueError(f"replicas must have different names, got {list(replicas)}")
        self._settings = settings
        self._latest: dict[str, _Held] = {}
        # A pending alert must not hide the resolve before it, which is still being repeated.
        self._latest_sendable: dict[str, _Held] = {}
        self._deliveries: dict[str, dict[str, _Delivery]] = {name: {} for name in replicas}

    @property
    def alerts(self) -> Mapping[str, Alert]:
        """The last state of every alert held, by fingerprint."""
        return {fingerprint: held.alert for fingerprint, held in self._latest.items()}

    @property
    def firing(self) -> int:
        """Number of alerts that fire."""
        return sum(held.alert.state == "firing" for held in self._latest.values())

    def apply(self, alert: Alert, written_s: float | None = None) -> bool:
        """Take one record of the alert topic; repeats and older records change nothing.

        Args:
            alert: The record.
            written_s: Wall-clock time of the record on the topic, Unix seconds; from it a resolve
                counts its repeats. The event time where it is not known.

        Returns:
            Whether this was news.
        """
        held = _Held(alert, alert.event_time_s if written_s is None else written_s)
        if alert.state != "pending":
            _keep_newer(self._latest_sendable, held)
        return _keep_newer(self._latest, held)

    def due(self, now_s: float, replica: str | None = None) -> list[Posting]:
        """Return what must be sent at ``now_s``, to ``replica`` or to all of them.

        A firing alert is due at once when new, then every ``resend_s``; so is a resolve, until
        ``resolve_repeat_s`` after it was written. A later resolve is due only once, and only to a
        replica that was told that the alert fires and still believes it.
        """
        self._forget(now_s)
        return [
            self._posting(name, held, now_s)
            for name in self._names(replica)
            for held in self._sendable()
            if self._due_s(name, held, now_s) <= now_s
        ]

    def next_due_s(self, now_s: float, replica: str | None = None) -> float:
        """Return when ``due`` next has something, if no record comes before.

        Returns:
            Unix seconds, up to ``now_s`` where something is due already; infinity for never.
        """
        times_s = (
            self._due_s(name, held, now_s)
            for name in self._names(replica)
            for held in self._sendable()
        )
        return min(times_s, default=math.inf)

    def sent(self, postings: Iterable[Posting], now_s: float) -> None:
        """Mark ``postings`` as delivered at ``now_s``."""
        self._record(postings, now_s, rejected=False)

    def rejected(self, postings: Iterable[Posting], now_s: float) -> None:
        """Mark ``postings`` as refused: not sent to that replica again until a new episode."""
        self._record(postings, now_s, rejected=True)

    def _record(self, postings: Iterable[Posting], now_s: float, *, rejected: bool) -> None:
        for posting in postings:
            alert = posting.alert
            self._deliveries[posting.replica][alert.fingerprint] = _Delivery(
                alert.state, alert.started_s, now_s, posting.ends_s, rejected
            )

    def _names(self, replica: str | None) -> Iterable[str]:
        return self._deliveries if replica is None else (replica,)

    def _sendable(self) -> Iterator[_Held]:
        for fingerprint, held in self._latest_sendable.items():
            if held.alert.state == "resolved" or self._latest[fingerprint].alert.state == "firing":
                yield held

    def _due_s(self, replica: str, held: _Held, now_s: float) -> float:
        """Return the time from which ``held`` is due; -inf for at once, inf for never."""
        alert = held.alert
        last = self._deliveries[replica].get(alert.fingerprint)
        if last is not None and last.rejected and last.started_s == alert.started_s:
            return math.inf
        next_s = -math.inf
        # A clock that was set back must not silence the repeats for as long as it went back.
        if last is not None and last.is_of(alert) and last.sent_s <= now_s:
            next_s = last.sent_s + self._settings.resend_s
        if alert.state == "firing":
            return next_s
        if max(now_s, next_s) <= held.written_s + self._settings.resolve_repeat_s:
            return next_s
        return -math.inf if last is not None and now_s < last.believed_s() else math.inf

    def _posting(self, replica: str, held: _Held, now_s: float) -> Posting:
        alert = held.alert
        starts_s = min(alert.started_s, now_s)
        if alert.state == "firing":
            ends_s = now_s + ENDS_AFTER_RESENDS * self._settings.resend_s
        else:
            # An end in the future would be a firing alert to Alertmanager.
            ends_s = max(starts_s, min(alert.event_time_s, now_s))
        last = self._deliveries[replica].get(alert.fingerprint)
        repeat = last is not None and last.is_of(alert)
        return Posting(replica, alert, starts_s, ends_s, repeat)

    def _forget(self, now_s: float) -> None:
        for fingerprint, held in list(self._latest.items()):
            if held.alert.state == "firing" or now_s - held.written_s <= self._settings.remember_s:
                continue
            sendable = self._latest_sendable.get(fingerprint)
            if sendable is not None and sendable.alert.state == "resolved":
                due_s = (self._due_s(name, sendable, now_s) for name in self._deliveries)
                if min(due_s, default=math.inf) < math.inf:
                    continue
            del self._latest[fingerprint]
            self._latest_sendable.pop(fingerprint, None)
            for delivered in self._deliveries.values():
                delivered.pop(fingerprint, None)


def _keep_newer(records: dict[str, _Held], new: _Held) -> bool:
    """Put ``new`` in its place if it is newer than what is there; return whether it was."""
    held = records.get(new.alert.fingerprint)
    if held is None or new.order > held.order:
        records[new.alert.fingerprint] = new
        return True
    if new.order == held.order and new.written_s < held.written_s:
        records[new.alert.fingerprint] = held._replace(written_s=new.written_s)
    return False


class WrittenAlert(NamedTuple):
    """A record of the alert topic; ``written_s`` is its timestamp there, Unix seconds."""

    alert: Alert
    written_s: float


class AlertBatch(NamedTuple):
    """Records of the alert topic in log order, and what could not be used.

    Attributes:
        alerts: The usable records.
        malformed: Number of values that were no alerts.
        fault: What was wrong with the first of those; empty where there was none.
    """

    alerts: tuple[WrittenAlert, ...] = ()
    malformed: int = 0
    fault: str = ""

    @classmethod
    def joined(cls, batches: Iterable[AlertBatch]) -> Self:
        """Return ``batches``, in their order, as one."""
        parts = list(batches)
        return cls(
            tuple(written for part in parts for written in part.alerts),
            sum(part.malformed for part in parts),
            next((part.fault for part in parts if part.malformed), ""),
        )


class TopicValue(NamedTuple):
    """A raw value of the alert topic, where it is, and its timestamp there in Unix seconds."""

    where: str
    value: bytes | None
    written_s: float | None


def decode_batch(values: Iterable[TopicValue]) -> AlertBatch:
    """Return what ``values`` say; tombstones (None) say nothing.

    Where a value has no timestamp, the alert's event time takes its place.
    """
    alerts: list[WrittenAlert] = []
    faults: list[str] = []
    for where, value, written_s in values:
        if value is None:
            continue
        try:
            alert = decode_alert(value)
        except MalformedRecord as error:
            faults.append(f"{where}: {error}")
        else:
            time_s = alert.event_time_s if written_s is None else written_s
            alerts.append(WrittenAlert(alert, time_s))
    return AlertBatch(tuple(alerts), len(faults), faults[0] if faults else "")


def decode_alert(value: bytes) -> Alert:
    """Return the alert in a value of the alert topic.

    Raises:
        MalformedRecord: If it is no alert, or its times cannot be times.
    """
    try:
        output = decode_output(value)
    except RecursionError:
        raise MalformedRecord("not_decodable", "", "nested too deeply for an alert") from None
    if not isinstance(output, Alert):
        kind = type(output).__name__
        raise MalformedRecord("wrong_type", "type", f"got a {kind}; an Alert is needed")
    for name in ("event_time_s", "started_s"):
        time_s = getattr(output, name)
        if not 0.0 <= time_s < MAX_UNIX_S:
            allowed = f"Unix seconds from 0 to {MAX_UNIX_S:.0f} are allowed"
            raise MalformedRecord("time_out_of_range", name, f"got {time_s!r}; {allowed}")
    return output
