"""The Numenta Anomaly Benchmark as a table of this one."""

from __future__ import annotations

from collections.abc import Iterator

from bench.detection.experiments import Case, Plan
from bench.detection.measure import Tick
from bench.detection.report import Figures
from bench.nab.scores import scores


def nab_cases(plan: Plan) -> Iterator[Case]:
    """Yield a case for each detector that NAB has a score of; none in short.

    Raises:
        FileNotFoundError: If the corpus is not there.
    """
    if plan.short:
        return
    for detector, by_profile in scores().items():
        figures = {f"{profile}_score": score for profile, score in by_profile.items()}

        def measure(tick: Tick, figures: Figures = figures) -> Figures:
            tick()
            return figures

        yield Case("nab", "58 series", detector, range(0), measure)
