"""How Kafka is reached and who asks: one set of rules for every process, the plugin's too.

It needs nothing beyond the standard library: the plugin runs in the engine's own environment. The
names are those of Kafka's own clients.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from daom.credentials import MASK, Secret, read_secret, tls_context

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_SASL: Final = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_password_file")
_SSL: Final = (
    "ssl_ca_file",
    "ssl_cert_file",
    "ssl_key_file",
    "ssl_key_password",
    "ssl_key_password_file",
)
_REQUEST_LOGGER: Final = logging.getLogger("aiokafka.conn")


@dataclass(frozen=True, kw_only=True)
class KafkaAccess:
    """The settings of TLS and SASL, checked against one another; no file is opened before use.

    Attributes:
        security_protocol: SSL is TLS; SASL_ proves who asks by a password.
        sasl_password_file: The password in a file, instead of ``sasl_password``.
        ssl_ca_file: Authorities (PEM) to trust; the system's otherwise.
        ssl_cert_file: The client's own certificate (PEM), where brokers ask for one.
        ssl_key_file: Its private key, unless the certificate's file holds it too.
        ssl_key_password: The passphrase of an encrypted key,
        ssl_key_password_file: or a file that holds it.
        ssl_check_hostname: Whether a broker's certificate must name the host that was asked.

    Raises:
        ValueError: If they do not fit together; the message shows no secret.
    """

    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_password_file: str | None = None
    ssl_ca_file: str | None = None
    ssl_cert_file: str | None = None
    ssl_key_file: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_key_password_file: str | None = None
    ssl_check_hostname: bool = True

    def __post_init__(self) -> None:
        self._refuse_what_goes_unused()
        require_one_secret("sasl_password", self.sasl_password, self.sasl_password_file)
        require_one_secret("ssl_key_password", self.ssl_key_password, self.ssl_key_password_file)
        keys = [name for name in _SSL if name.startswith("ssl_key") and getattr(self, name)]
        if keys and self.ssl_cert_file is None:
            raise ValueError(f"{keys[0]} is given without its ssl_cert_file")
        if not self._uses_sasl:
            return
        if self.sasl_mechanism is None:
            raise ValueError(
                f"security_protocol={self.security_protocol} needs sasl_mechanism: "
                "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
            )
        if not self.sasl_username:
            raise ValueError(f"security_protocol={self.security_protocol} needs sasl_username")
        if self.sasl_password is None and self.sasl_password_file is None:
            raise ValueError(
                f"security_protocol={self.security_protocol} needs sasl_password or "
                "sasl_password_file"
            )

    def client(self, bootstrap_servers: Sequence[str]) -> dict[str, Any]:
        """Return the keyword arguments that all aiokafka clients share.

        Raises:
            ConfigError: If the password or a certificate cannot be read.
        """
        settings: dict[str, Any] = {"bootstrap_servers": list(bootstrap_servers)}
        if self.security_protocol != "PLAINTEXT":
            settings["security_protocol"] = self.security_protocol
        if self._uses_tls:
            settings["ssl_context"] = tls_context(
                "kafka.ssl",
                ca_file=self.ssl_ca_file,
                cert_file=self.ssl_cert_file,
                key_file=self.ssl_key_file,
                key_password=_secret(
                    "ssl_key_password", self.ssl_key_password, self.ssl_key_password_file
                ),
                check_hostname=self.ssl_check_hostname,
            )
        if self._uses_sasl:
            _REQUEST_LOGGER.addFilter(_is_above_debug)
            settings |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": _secret(
                    "sasl_password", self.sasl_password, self.sasl_password_file
                ),
            }
        return settings

    @property
    def _uses_tls(self) -> bool:
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def _uses_sasl(self) -> bool:
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    def _refuse_what_goes_unused(self) -> None:
        """Raise for a password or authority that the protocol leaves out: a line in the clear."""
        for uses, names, needed in (
            (self._uses_sasl, _SASL, "SASL_SSL or SASL_PLAINTEXT"),
            (self._uses_tls, _SSL, "SSL or SASL_SSL"),
        ):
            idle = [name for name in names if getattr(self, name) is not None]
            if idle and not uses:
                raise ValueError(
                    f"{idle[0]} is not used by security_protocol={self.security_protocol}: "
                    f"set it to {needed}"
                )


def _secret(name: str, given: str | None, file: str | None) -> Secret:
    """Return a secret from where it is; empty where there is none."""
    if file is not None:
        return read_secret(Path(file), f"kafka.{name}_file")
    return Secret(given or "")


def _is_above_debug(record: logging.LogRecord) -> bool:
    """Keep out what aiokafka says at DEBUG: every request, and so the password that PLAIN sends."""
    return record.levelno > logging.DEBUG


def require_one_secret(name: str, secret: str | None, secret_file: str | None) -> None:
    """Raise ValueError unless a secret is given at most once, and is one."""
    if secret is not None and secret_file is not None:
        raise ValueError(f"{name} and {name}_file are given: drop one of them")
    if secret is not None and not secret.strip():
        raise ValueError(f"{name} is empty")
    if secret == MASK:
        raise ValueError(f"{name} is the mask that daom config show prints: give the secret itself")
