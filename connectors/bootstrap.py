"""Why no broker could be used: aiokafka tells nobody but its logger, and the operator must know."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from daom.errors import SinkRejected, SinkUnavailable

_LOGGER: Final = logging.getLogger("aiokafka")
_MUTE_HINT: Final = " (does it hang, or expect another security_protocol?)"
_REFUSALS: Final = (
    AuthenticationFailedError,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    ssl.SSLCertVerificationError,
)
"""What trying again cannot help: a wrong password, an unknown authority."""
_SPEAKS_TLS: Final = " (it speaks TLS there: see security_protocol)"
_SPEAKS_NO_TLS: Final = "it speaks no TLS there (see security_protocol)"
_TLS_ALERT: Final = 0x1503
"""How a TLS alert begins; read as Kafka's protocol it is the length of an enormous answer."""
_CORRELATION: Final = 0x0DA0
_API_VERSIONS_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
"""Length, key, version, correlation, no client's name: the request that every listener answers."""
_ASKED_WITHIN_S: Final = 2.0
_HINTS: Final[Mapping[type[BaseException], str]] = {
    IllegalSaslStateError: " (this port takes no SASL: which security_protocol does it expect?)",
    ssl.SSLCertVerificationError: " (see ssl_ca_file, ssl_check_hostname)",
}


@dataclass(slots=True)
class _Heard:
    """What aiokafka said of one attempt."""

    reasons: list[str] = field(default_factory=list)
    is_refusal: bool = False
    broke_off: list[tuple[str, int]] = field(default_factory=list)

    def note(self, record: logging.LogRecord) -> None:
        match record.args:
            case (host, port, BaseException() as error):
                self.is_refusal |= isinstance(error, _REFUSALS) or _is_tls_alert(error)
                if isinstance(error, ConnectionResetError | ssl.SSLEOFError):
                    self.broke_off.append((str(host), int(str(port))))
                self.reasons.append(f"{host}:{port}: {_words(error)}")
            case _:
                self.reasons.append(record.getMessage())


_HEARD: Final[ContextVar[_Heard | None]] = ContextVar("heard", default=None)


class _Listening:
    """Makes aiokafka's logger speak while anybody listens; there may be several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners = 0
        self._own_level = logging.NOTSET
        self._level = logging.WARNING

    def __enter__(self) -> None:
        with self._lock:
            self._listeners += 1
            if self._listeners > 1:
                return
            self._own_level, self._level = _LOGGER.level, _LOGGER.getEffectiveLevel()
            if self._level > logging.WARNING:
                _LOGGER.setLevel(logging.WARNING)
            _LOGGER.addFilter(self._keep)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._listeners -= 1
            if not self._listeners:
                _LOGGER.removeFilter(self._keep)
                _LOGGER.setLevel(self._own_level)

    def _keep(self, record: logging.LogRecord) -> bool:
        heard = _HEARD.get()
        if heard is None:
            return record.levelno >= self._level
        heard.note(record)
        return False


_LISTENING: Final = _Listening()


@asynccontextmanager
async def bootstrap_reasons(client: Mapping[str, object]) -> AsyncIterator[None]:
    """Put into the error of a client's start why it failed; no secret is in it.

    Args:
        client: The settings of the client that is started within.

    Raises:
        SinkRejected: If a broker refused the credentials, or this side the broker's certificate, or
            one of them speaks TLS and the other does not.
        SinkUnavailable: If none was reached; trying again may help.
    """
    heard = _Heard()
    token = _HEARD.set(heard)
    try:
        with _LISTENING:
            yield
    except (KafkaError, OSError, TimeoutError) as error:
        why = "; ".join(dict.fromkeys(heard.reasons)) or f"{address_of(client)}: {error!r}"
        without_tls = await _without_tls(heard.broke_off) if "ssl_context" in client else []
        if without_tls:
            why = "; ".join(f"{host}:{port}: {_SPEAKS_NO_TLS}" for host, port in without_tls)
        if without_tls or heard.is_refusal or isinstance(error, _REFUSALS):
            raise SinkRejected(f"Kafka cannot be used as configured: {why}") from error
        raise SinkUnavailable(f"no Kafka broker answers: {why}") from error
    finally:
        _HEARD.reset(token)


def address_of(client: Mapping[str, object]) -> str:
    """Return where the settings of a client say that Kafka is."""
    servers = client.get("bootstrap_servers", "localhost")
    return ",".join(servers) if isinstance(servers, list | tuple) else str(servers)


async def _without_tls(addresses: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return those where a broker answers in the clear; it is asked for its versions, no more.

    A handshake that is broken off looks the same where a broker restarts behind a proxy.
    """
    return [
        address for address in dict.fromkeys(addresses) if await _answers_in_the_clear(*address)
    ]


async def _answers_in_the_clear(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_ASKED_WITHIN_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_API_VERSIONS_REQUEST)
                _, correlation = struct.unpack(">ii", await reader.readexactly(8))
            finally:
                writer.close()
    except (OSError, EOFError):
        return False
    return bool(correlation == _CORRELATION)


def _is_tls_alert(error: BaseException) -> bool:
    cut_short = error.__cause__
    if not isinstance(cut_short, asyncio.IncompleteReadError):
        return False
    return (cut_short.expected or 0) >> 16 == _TLS_ALERT


def _words(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if _is_tls_alert(error):
        return text + _SPEAKS_TLS
    if isinstance(error, TimeoutError | ConnectionResetError | ssl.SSLEOFError) or "closed" in text:
        return f"{text}{_MUTE_HINT}"
    return text + next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
