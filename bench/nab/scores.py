"""Every detector's scores on NAB: DAOM's, two published ones made anew, and what was published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.nab.corpus import (
    Stream,
    nab_folder,
    read_corpus,
    read_profiles,
    read_published,
    read_thresholds,
)
from bench.nab.daom_detector import alerts, evidence_nats, halves
from bench.nab.published import relative_entropy, windowed_gaussian
from bench.nab.scorer import learning_rows, total

Alerts = Mapping[str, NDArray[np.bool_]]
Scores = dict[str, float]
"""By profile."""

_REPRODUCED: Final[dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "relativeEntropy": relative_entropy,
    "windowedGaussian": windowed_gaussian,
}


def scores(folder: Path | None = None) -> dict[str, Scores]:
    """Return the score of each detector under each profile; about half a minute.

    Raises:
        FileNotFoundError: If the corpus is not in ``folder``, or where it is by default.
    """
    folder = folder or nab_folder()
    streams = read_corpus(folder)
    tuned_on, held_out = halves(streams)
    ours = {stream.name: alerts(evidence_nats(stream)) for stream in streams}
    found = {
        "DAOM": _by_profile(folder, streams, ours),
        "DAOM, streams it was tuned on": _by_profile(folder, tuned_on, ours),
        "DAOM, streams held out": _by_profile(folder, held_out, ours),
        "an alert every n rows, as many": _by_profile(folder, streams, evenly(streams, ours)),
    }
    for name in _REPRODUCED:
        found[f"{name}, made anew"] = reproduced(name, folder, streams)
    published = read_published(folder)
    best_first = sorted(published, key=lambda name: -published[name]["standard"])
    return found | {f"{name}, published": published[name] for name in best_first}


def reproduced(name: str, folder: Path, streams: Sequence[Stream]) -> Scores:
    """Return the scores of a published detector made anew, with its published thresholds."""
    detector = _REPRODUCED[name]
    anomaly = {stream.name: detector(stream.values) for stream in streams}
    profiles, thresholds = read_profiles(folder), read_thresholds(folder, name)
    return {
        profile: total(
            streams, {s.name: anomaly[s.name] >= thresholds[profile] for s in streams}
        ).score(profiles[profile])
        for profile in profiles
    }


def evenly(streams: Sequence[Stream], ours: Alerts) -> Alerts:
    """Return as many alerts as ``ours`` once learning is over, spread evenly over all streams."""
    scored = {s.name: np.arange(s.values.size) >= learning_rows(s.values.size) for s in streams}
    count = sum(int((ours[s.name] & scored[s.name]).sum()) for s in streams)
    every = max(round(sum(int(rows.sum()) for rows in scored.values()) / max(count, 1)), 1)
    return {name: rows & (np.cumsum(rows) % every == 0) for name, rows in scored.items()}


def _by_profile(folder: Path, streams: Sequence[Stream], firing: Alerts) -> Scores:
    outcome = total(streams, firing)
    return {name: outcome.score(profile) for name, profile in read_profiles(folder).items()}
