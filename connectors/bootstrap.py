"""Why no broker could be used: aiokafka tells nobody but its logger, and the operator must know."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
_HINTS: Final[Mapping[type[BaseException], str]] = {
    IllegalSaslStateError: " (this port takes no SASL: which security_protocol does it expect?)",
    ssl.SSLCertVerificationError: " (see ssl_ca_file, ssl_check_hostname)",
}


@dataclass(slots=True)
class _Heard:
    """What aiokafka said of one attempt."""

    reasons: list[str] = field(default_factory=list)
    is_refusal: bool = False

    def note(self, record: logging.LogRecord) -> None:
        match record.args:
            case (host, port, BaseException() as error):
                self.is_refusal |= isinstance(error, _REFUSALS)
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


@contextmanager
def bootstrap_reasons(client: Mapping[str, object]) -> Iterator[None]:
    """Put into the error of a client's start why it failed; no secret is in it.

    Args:
        client: The settings of the client that is started within.

    Raises:
        SinkRejected: If a broker refused the credentials, or this side the broker's certificate.
        SinkUnavailable: If none was reached; trying again may help.
    """
    heard = _Heard()
    token = _HEARD.set(heard)
    try:
        with _LISTENING:
            yield
    except (KafkaError, OSError, TimeoutError) as error:
        why = "; ".join(dict.fromkeys(heard.reasons)) or f"{address_of(client)}: {error!r}"
        if heard.is_refusal or isinstance(error, _REFUSALS):
            raise SinkRejected(f"Kafka cannot be used as configured: {why}") from error
        raise SinkUnavailable(f"no Kafka broker answers: {why}") from error
    finally:
        _HEARD.reset(token)


def address_of(client: Mapping[str, object]) -> str:
    """Return where the settings of a client say that Kafka is."""
    servers = client.get("bootstrap_servers", "localhost")
    return ",".join(servers) if isinstance(servers, list | tuple) else str(servers)


def _words(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError | ConnectionResetError | ssl.SSLEOFError) or "closed" in text:
        return f"{text}{_MUTE_HINT}"
    return text + next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
