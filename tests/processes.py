"""A ``daom`` command that runs until it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

ENDED_WITHIN_S = 20.0


@contextlib.contextmanager
def running(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``daom ARGUMENTS``, with further environment variables; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "daom", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said_at_the_end(process: subprocess.Popen[str]) -> str:
    """Send SIGTERM, which must end it well; return what it has said on stderr."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=ENDED_WITHIN_S)
    assert process.returncode == 0, said
    return said
