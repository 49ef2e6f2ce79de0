"""Post alerts to one Alertmanager replica, through its HTTP API (v2)."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self

import aiohttp
import msgspec
from yarl import URL

from daom.alert_book import Posting
from daom.errors import ConfigError, SinkRejected, SinkUnavailable

DEFAULT_TIMEOUT_S: Final = 10.0

_RETRYABLE: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_INVALID: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})

_BODY_BYTES: Final = 4_096
_REASON_CHARS: Final = 300


def to_wire(posting: Posting, generator_url: str | None = None) -> dict[str, Any]:
    """Return ``posting`` as Alertmanager's API takes it.

    Labels and annotations go out exactly as they are; the times as RFC 3339 in UTC, with
    milliseconds.
    """
    wire: dict[str, Any] = {
        "labels": dict(posting.alert.labels),
        "annotations": dict(posting.alert.annotations),
        "startsAt": _rfc3339(posting.starts_s),
        "endsAt": _rfc3339(posting.ends_s),
    }
    if generator_url is not None:
        wire["generatorURL"] = generator_url
    return wire


class Rejection(NamedTuple):
    """An alert that Alertmanager refused, and why."""

    posting: Posting
    reason: str


class AlertsRejected(SinkRejected):
    """Some alerts were refused as invalid; all the others of the same call were delivered.

    Attributes:
        rejections: The refused ones.
    """

    def __init__(self, message: str, rejections: Sequence[Rejection]) -> None:
        super().__init__(message)
        self.rejections = tuple(rejections)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    is_json: bool

    @property
    def blames_an_alert(self) -> bool:
        """Whether the alerts were refused; else nobody looked at them.

        A proxy, or a server that expects TLS, answers 400 too, but not in JSON. Taken for
        Alertmanager's word, that would silence every alert.
        """
        too_large = self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return too_large or (self.status in _INVALID and self.is_json)


class AlertmanagerSink:
    """One Alertmanager replica. Delivery is at least once: a repeat of an alert is harmless.

    Neither the errors nor the representation of a sink show its credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        bearer_token: str | None = None,
        tls: ssl.SSLContext | None = None,
        generator_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Describe the replica; nothing is opened before the first ``send``.

        Args:
            url: Base address, with the path prefix if it has one: ``https://am.example/prefix``.
                Credentials in it are used like ``username`` and ``password``.
            username: For basic authentication, with ``password``.
            password: The password of ``username``.
            bearer_token: For bearer authentication, instead of ``username``.
            tls: Whom an https url is believed, and the client's own certificate; the system's
                authorities, and no certificate, otherwise.
            generator_url: Where an alert's receiver can look further; the same for all alerts.
            timeout_s: Longest time that one request may take in all, in seconds.

        Raises:
            ConfigError: If the url or the credentials cannot be used.
        """
        base = _parsed(url)
        self.url = str(base.with_user(None)).rstrip("/")
        self._endpoint = base.with_user(None) / "api" / "v2" / "alerts"
        username, password = username or base.user, password or base.password
        authorization = _authorization(self.url, username, password, bearer_token)
        self._headers = {"Content-Type": "application/json"} | authorization
        sent = [header.partition(" ")[2] for header in authorization.values()]
        self._secrets = [secret for secret in (password, *sent) if secret]
        self._tls: ssl.SSLContext | bool = True if tls is None else tls
        self._generator_url = generator_url
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"AlertmanagerSink({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; a later ``send`` opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, postings: Sequence[Posting]) -> None:
        """Deliver every posting, or raise; sending the same again is always safe.

        Alertmanager answers a batch with 400 for one invalid alert, although it stored the
        valid ones. The batch is then sent again one by one, so that the culprit is known.

        Raises:
            SinkUnavailable: Not reached, or not able to answer: some may have been delivered.
            AlertsRejected: Some were refused as invalid; all the others were delivered.
            SinkRejected: The request itself was refused (wrong credentials or path, say), so
                none was delivered and nothing is said about the alerts.
        """
        if not postings:
            return
        refusal = await self._post(postings)
        if refusal is None:
            return
        rejections = []
        if len(postings) == 1:
            rejections = [Rejection(postings[0], refusal.reason)]
        else:
            for posting in postings:
                refused = await self._post([posting])
                if refused is not None:
                    rejections.append(Rejection(posting, refused.reason))
        if rejections:
            first = rejections[0]
            raise AlertsRejected(
                f"{self.url}: {len(rejections)} of {len(postings)} alerts refused "
                f"({refusal.status}); {dict(first.posting.alert.labels)}: {first.reason}",
                rejections,
            )

    async def _post(self, postings: Sequence[Posting]) -> _Answer | None:
        """Send one request; return the answer if it blames an alert, None once delivered."""
        answer = await self._answer(
            msgspec.json.encode([to_wire(posting, self._generator_url) for posting in postings])
        )
        if answer.blames_an_alert:
            return answer
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return None
        message = f"{self.url} answered {answer.status}: {answer.reason}"
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in _RETRYABLE:
            raise SinkUnavailable(message)
        raise SinkRejected(message)

    async def _answer(self, body: bytes) -> _Answer:
        try:
            # A redirected POST may become a GET, whose 200 would pass for a delivery.
            async with self._open().post(
                self._endpoint, data=body, allow_redirects=False
            ) as response:
                text = (await response.content.read(_BODY_BYTES)).decode(errors="replace")
                reason = _reason(text) or response.reason or "no reason given"
                if "Location" in response.headers:
                    reason += f"; redirects to {response.headers['Location']}"
                is_json = response.content_type == "application/json"
                return _Answer(response.status, self._scrubbed(reason), is_json)
        except TimeoutError as error:
            raise SinkUnavailable(f"{self.url}: no answer in {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = self._scrubbed(str(error)) or type(error).__name__
            raise SinkUnavailable(f"{self.url}: {reason}") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # One request a minute: a kept connection would mostly be found closed.
                connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            )
        return self._session

    def _scrubbed(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _parsed(url: str) -> URL:
    try:
        base = URL(url)
    except ValueError:
        base = URL()
    # The url is not shown: it may hold a password.
    if base.scheme not in {"http", "https"} or not base.host:
        raise ConfigError("an Alertmanager url must be http://HOST[:PORT][/PREFIX], or https")
    if base.query_string or base.fragment:
        raise ConfigError(f"{base.origin()}: an Alertmanager url has no query and no fragment")
    return base


def _authorization(
    url: str, username: str | None, password: str | None, bearer_token: str | None
) -> dict[str, str]:
    """Return the header that proves who sends, if there is anything to prove it with."""
    if username is not None and bearer_token is not None:
        raise ConfigError(f"{url}: give a username or a bearer token, not both")
    if bearer_token is not None:
        token = bearer_token.strip()
        if not token.isprintable():
            raise ConfigError(f"{url}: the bearer token has a character that no header may have")
        return {"Authorization": f"Bearer {token}"}
    if username is not None:
        pair = f"{username}:{password or ''}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _rfc3339(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _reason(body: str) -> str:
    """Return the message in an answer: plain text, a JSON string, or a JSON object's message."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        decoded = body
    if isinstance(decoded, dict):
        decoded = decoded.get("message", body)
    return " ".join(str(decoded).split())[:_REASON_CHARS]
