"""The sections of the configuration that say what a process connects to, and with which rights."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, SecretStr, field_serializer, model_validator

from daom.credentials import MASK, Secret, read_secret, tls_context
from daom.fields import Seconds, SecretText, Section, Text, Words
from daom.kafka_access import KafkaAccess, SaslMechanism, SecurityProtocol, require_one_secret

_PASSWORD_IN_URL: Final = re.compile(r"(//[^/@:]*:)[^/]*(@)")


class KafkaConfig(Section):
    """Where Kafka is, and how its topics are laid out."""

    bootstrap_servers: Annotated[Words, Field(min_length=1)] = ("localhost:9092",)
    """Brokers to ask first, host:port."""
    topic_prefix: str = Field(default="daom", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Topics are named PREFIX.telemetry, PREFIX.alerts and so on."""
    group: str = Field(default="daom-worker", min_length=1)
    """Consumer group of the workers: the partitions are shared among its members."""
    partitions: int = Field(default=16, ge=1, le=1_000)
    """Partitions of a topic that ``daom topics create`` makes."""
    replication_factor: int = Field(default=1, ge=1, le=10)
    """Copies of each partition: 3 in production."""
    retention_s: Seconds = 30 * 86_400.0
    """How long telemetry is kept: what a replay can go back to."""
    session_timeout_s: Seconds = 10.0
    """A worker that is silent for so long has died."""
    rebalance_timeout_s: Seconds = 30.0
    """How long a rebalance waits for the members."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    """How brokers are spoken to: SSL is TLS; SASL_ adds a user and a password."""
    sasl_mechanism: SaslMechanism | None = None
    """How the password is proven: SCRAM never sends it, PLAIN does."""
    sasl_username: Text | None = None
    """Who asks."""
    sasl_password: SecretText | None = None
    """The password, best given as DAOM_KAFKA__SASL_PASSWORD,"""
    sasl_password_file: str | None = None
    """or a file that holds it."""
    ssl_ca_file: str | None = None
    """Authorities (PEM) that signed the brokers' certificates; the system's otherwise."""
    ssl_cert_file: str | None = None
    """A certificate (PEM) of one's own, where the brokers ask for one,"""
    ssl_key_file: str | None = None
    """and its private key."""
    ssl_key_password: SecretText | None = None
    """The passphrase of an encrypted key, best given as DAOM_KAFKA__SSL_KEY_PASSWORD,"""
    ssl_key_password_file: str | None = None
    """or a file that holds it."""
    ssl_check_hostname: bool = True
    """A broker's certificate must name the host that was asked."""

    @model_validator(mode="after")
    def _access_fits_together(self) -> Self:
        self._access()
        return self

    def client(self) -> dict[str, Any]:
        """Return the keyword arguments that all aiokafka clients share.

        Raises:
            ConfigError: If the password or a certificate cannot be read.
        """
        return self._access().client(self.bootstrap_servers)

    def _access(self) -> KafkaAccess:
        names = [field.name for field in dataclasses.fields(KafkaAccess)]
        given = {name: getattr(self, name) for name in names}
        secrets = {
            "sasl_password": _revealed(self.sasl_password),
            "ssl_key_password": _revealed(self.ssl_key_password),
        }
        return KafkaAccess(**given | secrets)


class BridgeConfig(Section):
    """The Alertmanager bridge."""

    alertmanagers: Annotated[Words, Field(min_length=1)] = ("http://localhost:9093",)
    """Base URL of every replica: each is sent every alert."""
    resend_s: Seconds = 60.0
    """A firing alert is sent again so often."""
    resolve_repeat_s: Seconds = 900.0
    """A resolve is repeated for so long."""
    basic_auth_username: Text | None = None
    """Of basic authentication."""
    basic_auth_password: SecretText | None = None
    """The password, best given as DAOM_BRIDGE__BASIC_AUTH_PASSWORD,"""
    basic_auth_password_file: str | None = None
    """or a file that holds it."""
    bearer_token: SecretText | None = None
    """A bearer token instead of a user and a password,"""
    bearer_token_file: str | None = None
    """or a file that holds it."""
    tls_ca_file: str | None = None
    """Authorities (PEM) that signed the replicas' certificates; the system's otherwise."""
    tls_cert_file: str | None = None
    """A certificate (PEM) of one's own, where the replicas ask for one,"""
    tls_key_file: str | None = None
    """and its private key, without a passphrase."""
    tls_insecure_skip_verify: bool = False
    """Whoever answers is believed to be Alertmanager: for trying things out."""

    @model_validator(mode="after")
    def _access_fits_together(self) -> Self:
        password, token = _revealed(self.basic_auth_password), _revealed(self.bearer_token)
        require_one_secret("basic_auth_password", password, self.basic_auth_password_file)
        require_one_secret("bearer_token", token, self.bearer_token_file)
        has_password = bool(password or self.basic_auth_password_file)
        if has_password != (self.basic_auth_username is not None):
            raise ValueError("basic_auth_username and basic_auth_password go together")
        if has_password and (token or self.bearer_token_file):
            raise ValueError("basic_auth_password and bearer_token are given: drop one of them")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_key_file is given without its tls_cert_file")
        return self

    @field_serializer("alertmanagers")
    def _without_passwords(self, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_PASSWORD_IN_URL.sub(rf"\1{MASK}\2", url) for url in urls)

    def sink_options(self) -> dict[str, Any]:
        """Return the keyword arguments that the sinks of all replicas share.

        Raises:
            ConfigError: If a secret or a certificate cannot be read.
        """
        return {
            "username": self.basic_auth_username,
            "password": _secret(self, "basic_auth_password"),
            "bearer_token": _secret(self, "bearer_token"),
            "tls": tls_context(
                "bridge.tls",
                ca_file=self.tls_ca_file,
                cert_file=self.tls_cert_file,
                key_file=self.tls_key_file,
                verify=not self.tls_insecure_skip_verify,
            ),
        }


def _secret(bridge: BridgeConfig, name: str) -> Secret | None:
    path = getattr(bridge, f"{name}_file")
    if path is not None:
        return read_secret(Path(path), f"bridge.{name}_file")
    given = _revealed(getattr(bridge, name))
    return None if given is None else Secret(given)


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
