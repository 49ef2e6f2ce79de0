"""Secrets and certificates: read from files, and shown to nobody."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from daom.errors import ConfigError

MASK: Final = "**********"
"""What stands for a secret wherever settings are shown."""

_TAG: Final = re.compile(r"\b(tag|alias|anchor) '.*'")


class Secret(str):
    """A text that its own representation does not show, so that no dump of settings does."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)


def read_secret(path: Path, name: str) -> Secret:
    """Return the secret that the file ``path`` holds, without white space around it.

    Args:
        path: A text file that holds nothing else.
        name: What the secret or its setting is called.

    Raises:
        ConfigError: If it cannot be read or is empty; the message shows nothing of it.
    """
    try:
        found = path.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        # Not chained: that error holds the content.
        raise ConfigError(f"{name}: {path} is no text in UTF-8") from None
    if not found:
        raise ConfigError(f"{name}: {path} is empty")
    return Secret(found)


def without_quotations(fault: str) -> str:
    """Return, in one line, what a parser says of a file, without what it quotes of it.

    The quoted line may be a password's; and one that begins with ! or * is a tag or an alias.
    """
    said = [line for line in fault.splitlines() if not line.startswith("    ")]
    return _TAG.sub(r"\1", " ".join(" ".join(said).split())).removesuffix(":")


def tls_context(
    prefix: str,
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    key_password: str = "",
    check_hostname: bool = True,
    verify: bool = True,
) -> ssl.SSLContext:
    """Return how a client trusts a server over TLS, and proves itself to it.

    Args:
        prefix: What the settings' names begin with, for errors: ``kafka.ssl``.
        ca_file: Authorities (PEM) to trust; the system's otherwise.
        cert_file: The client's own certificate (PEM), where the server asks for one.
        key_file: Its private key, unless ``cert_file`` holds it too.
        key_password: The passphrase of that key; empty: it has none.
        check_hostname: Whether the certificate must be of the host that was asked for.
        verify: False: anybody is believed to be the server.

    Raises:
        ConfigError: If a file cannot be used; names the setting and the file.
    """
    files = {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}
    for setting, path in files.items():
        if path is not None:
            _require_readable(f"{prefix}_{setting}", path)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ConfigError(f"{prefix}_ca_file: {ca_file} holds no certificate (PEM)") from error
    if cert_file is not None:
        try:
            # Asked for even where there is none: OpenSSL would ask at the terminal, and wait.
            context.load_cert_chain(cert_file, key_file, password=key_password.encode)
        except ssl.SSLError as error:
            how = "of this passphrase" if key_password else "without a passphrase"
            raise ConfigError(
                f"{prefix}_cert_file: {cert_file} and {key_file or 'no key file'} hold no "
                f"certificate with its key, {how} ({error.reason or 'PEM'})"
            ) from error
    context.check_hostname = check_hostname and verify
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    return context


def _require_readable(setting: str, path: str) -> None:
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error.strerror}") from error
