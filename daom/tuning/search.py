"""Which combinations of the judging fields are replayed: all of them, or those Optuna proposes.

A search proposes rounds and is told how good the best setting of each replay was. It knows no clock
and no process: the same space, seed and answers give the same proposals. So a search that was
interrupted goes on by being run again from its beginning, with the answers that are known already.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from daom.errors import MissingExtra
from daom.tuning.space import Choice, Range, Setting, Space, Value

if TYPE_CHECKING:
    from types import ModuleType

    import optuna

Search = Generator[list[Setting], Sequence[float], None]
"""Yields rounds of settings; is sent a number for each, less is better, NaN for what is refused."""

ROUND: Final = 8
"""Settings that Optuna proposes at once: the first eight replays learn nothing of one another."""


def search(space: Space, trials: int, seed: int) -> tuple[Search, int]:
    """Return how ``space`` is searched, and how many replays that takes at most.

    All combinations, if their number is known and at most ``trials``; else ``trials`` of them.

    Raises:
        MissingExtra: If Optuna is needed and not installed.
    """
    grid = space.grid()
    if grid is not None and len(grid) <= trials:
        return _all(grid), len(grid)
    return _proposed(_import_optuna(), space.judging, trials, seed), trials


def _all(grid: list[Setting]) -> Search:
    yield grid


def _proposed(
    optuna: ModuleType, fields: Sequence[Choice | Range], trials: int, seed: int
) -> Search:
    """Yield what the tree-structured Parzen estimator proposes."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    for size in _round_sizes(trials):
        asked = [study.ask() for _ in range(size)]
        values = yield [{f.field: _suggested(trial, f) for f in fields} for trial in asked]
        for trial, value in zip(asked, values, strict=True):
            if math.isnan(value):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, value)


def _round_sizes(trials: int) -> Iterator[int]:
    for begun in range(0, trials, ROUND):
        yield min(ROUND, trials - begun)


def _suggested(trial: optuna.Trial, field: Choice | Range) -> Value:
    if isinstance(field, Choice):
        number = trial.suggest_categorical(field.field, list(range(len(field.values))))
        return field.values[number]
    if field.whole:
        return trial.suggest_int(field.field, round(field.low), round(field.high), log=field.log)
    return field.rounded(trial.suggest_float(field.field, field.low, field.high, log=field.log))


def _import_optuna() -> ModuleType:
    try:
        import optuna  # noqa: PLC0415 - an extra.
    except ImportError as error:
        raise MissingExtra(
            "a space with a range of a field that takes replays of its own, or with more "
            "combinations than --trials, is searched by Optuna: pip install 'daom[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
