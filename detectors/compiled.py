"""Compiled formulas: the loops of judging a pane, by numba.

A pane's close asks hundreds of short questions of short arrays, of which numpy's calls would take
nine tenths of the time. A compiled function is plain Python over numbers and arrays; it costs half
a microsecond to call, and a second or two to compile when it is first used. What has been compiled
is kept beside its source, or where ``NUMBA_CACHE_DIR`` says.

A compiled function calls none of another file: what is kept is renewed when its own file changes,
and only then.

Source: Lam, Pitrou & Seibert 2015, doi:10.1145/2833157.2833162 (numba).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call; divisions by zero give what numpy gives."""
    try:
        return _compile(function, keep=True)
    except RuntimeError:
        # Nowhere to keep it, as in a container that is read-only.
        return _compile(function, keep=False)


def _compile(function: Function, *, keep: bool) -> Function:
    return cast(Function, njit(cache=keep, error_model="numpy")(function))
