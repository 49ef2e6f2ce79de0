"""The corpus of the Numenta Anomaly Benchmark (NAB): streams, labels and what was published.

Source: https://github.com/numenta/NAB (MIT); Ahmad et al. 2017, doi:10.1016/j.neucom.2017.04.070.
"""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


class Window(NamedTuple):
    """Rows ``first`` to ``last``, both within: an alert there finds the anomaly."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One file of the corpus.

    Attributes:
        name: Its folder and file name.
        time_s: Event time of each row in Unix seconds, shape ``(rows,)``.
        values: The metric, shape ``(rows,)``.
        windows: Where anomalies are, ascending and apart.
    """

    name: str
    time_s: NDArray[np.float64]
    values: NDArray[np.float64]
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What an application pays.

    Attributes:
        found: Reward of an anomaly found at once.
        missed: Cost of one that is not found.
        false_alarm: Cost of an alert far from every anomaly.
    """

    found: float
    missed: float
    false_alarm: float


def nab_folder() -> Path:
    """Return where the corpus lies: ``nab`` in ``$DAOM_DATA``, or beside the repository."""
    return Path(os.environ.get("DAOM_DATA", _BESIDE_THE_REPOSITORY)) / "nab"


def read_corpus(folder: Path) -> list[Stream]:
    """Return all streams of the corpus in the order of their names.

    Raises:
        FileNotFoundError: If ``folder`` holds no corpus.
    """
    labels = json.loads((folder / "labels" / "combined_windows.json").read_text("utf-8"))
    return [_read_stream(folder / "data" / name, name, labels[name]) for name in sorted(labels)]


def read_profiles(folder: Path) -> dict[str, Profile]:
    """Return the benchmark's profiles by name: standard, and two that fear one error more."""
    profiles = json.loads((folder / "config" / "profiles.json").read_text("utf-8"))
    costs = {name: profile["CostMatrix"] for name, profile in profiles.items()}
    return {
        name: Profile(found=c["tpWeight"], missed=c["fnWeight"], false_alarm=c["fpWeight"])
        for name, c in costs.items()
    }


def read_thresholds(folder: Path, detector: str) -> dict[str, float]:
    """Return the alarm threshold that was published for ``detector``, by profile."""
    published = json.loads((folder / "config" / "thresholds.json").read_text("utf-8"))
    return {profile: float(entry["threshold"]) for profile, entry in published[detector].items()}


def read_published(folder: Path) -> dict[str, dict[str, float]]:
    """Return the published scores, by detector and profile."""
    published = (folder / "results" / "final_results.json").read_text("utf-8")
    scores: dict[str, dict[str, float]] = json.loads(published)
    return scores


def _read_stream(path: Path, name: str, limits: list[tuple[str, str]]) -> Stream:
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))[1:]
    times = np.array([_unix_s(row[0]) for row in rows])
    # A clock put back repeats times; as in the benchmark, the first row of a time is meant.
    windows = tuple(
        Window(*(int(np.flatnonzero(times == _unix_s(limit))[0]) for limit in pair))
        for pair in limits
    )
    return Stream(name, times, np.array([float(row[1]) for row in rows]), windows)


def _unix_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
