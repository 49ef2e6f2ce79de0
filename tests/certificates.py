"""Certificates for a test, made by openssl: a server's or a client's that vouches for itself."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.programs import require_program


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate, which is its own authority, and its private key (PEM)."""

    cert_file: Path
    key_file: Path

    def encrypted(self, passphrase: str) -> Path:
        """Return its key once more, encrypted with ``passphrase``."""
        found = self.key_file.with_suffix(".encrypted.key")
        names = ["-in", str(self.key_file), "-out", str(found), "-passout", f"pass:{passphrase}"]
        subprocess.run(["openssl", "pkcs8", "-topk8", *names], check=True, capture_output=True)
        return found


def make_certificate(directory: Path, name: str) -> Certificate:
    """Make a certificate for ``name`` on 127.0.0.1, valid for two days; it needs openssl."""
    require_program("openssl", "which makes certificates")
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    options = ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(made.key_file), "-out", str(made.cert_file)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", *options, *names, *files],
        check=True,
        capture_output=True,
    )
    return made
