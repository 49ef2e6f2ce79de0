"""What commands that read recordings share: their values, and a sign that they get on."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from connectors.recordings import read_lines
from daom.replay import Sourced


def values_of(recording: str) -> Iterator[Sourced]:
    """Yield what a recording holds, in log order."""
    for line in read_lines(recording):
        yield Sourced(f"{recording}:{line.number}", line.value)


def spinner(*, quiet: bool = False) -> Progress:
    """Return a progress on stderr of what has no known end; none where nobody would see it."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden)
