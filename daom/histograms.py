"""Histograms as they came, checked: bucket counts of an engine whose samples nobody can see.

A fault in the form (lengths that differ, no numbers) is raised, as in a table; a histogram with a
value that cannot be is left out whole, since the rest of its counts would mislead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from daom.columns import as_number, check_limit, check_names, refuse
from daom.errors import MalformedRecord
from daom.events import Histogram
from daom.limits import Limits

MAX_BUCKETS: Final = 512
_MAX_COUNT: Final = 2**53
"""Beyond it JSON knows no whole numbers."""


def usable_histograms(
    raw: object, faults: list[MalformedRecord], limits: Limits
) -> dict[str, Histogram]:
    """Return the histograms of a map from columns to histograms; note those that cannot be used."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        refuse("wrong_type", "histograms", raw, "a map from columns to histograms is needed")
    check_names(raw, "histograms", limits)
    found = {}
    for name, fields in raw.items():
        field = f"histograms.{name}"
        edges, counts = _numbers(fields, field)
        fault = _edge_fault(edges, field) or _count_fault(counts, field)
        if fault is not None:
            faults.append(fault)
            continue
        found[name] = Histogram(
            le_s=np.array(edges, np.float64), counts=np.array(counts, np.float64).astype(np.int64)
        )
    return found


def wire_histogram(histogram: Histogram) -> dict[str, list[float | None] | list[int]]:
    """Return ``histogram`` as it is sent: JSON has no infinity, so the open edge is null."""
    edges = [edge if math.isfinite(edge) else None for edge in histogram.le_s.tolist()]
    return {"le_s": edges, "counts": histogram.counts.tolist()}


def _numbers(fields: object, field: str) -> tuple[list[float], list[float]]:
    """Return edges and counts, as many of the one as of the other."""
    if not isinstance(fields, dict):
        refuse("wrong_type", field, fields, "a map with 'le_s' and 'counts' is needed")
    columns: dict[str, list[Any]] = {}
    for name in ("le_s", "counts"):
        values = fields.get(name)
        if values is None:
            refuse("missing_field", f"{field}.{name}", values, "a list of numbers is needed")
        if not isinstance(values, list):
            refuse("wrong_type", f"{field}.{name}", values, "a list of numbers is needed")
        columns[name] = values
    edges, counts = columns["le_s"], columns["counts"]
    if len(edges) != len(counts):
        lengths = {"le_s": len(edges), "counts": len(counts)}
        refuse("columns_unequal", field, lengths, "each bucket needs one edge and one count")
    check_limit("buckets", len(edges), MAX_BUCKETS, field)
    if edges and edges[-1] is None:
        edges = [*edges[:-1], math.inf]
    return _floats(edges, f"{field}.le_s"), _floats(counts, f"{field}.counts")


def _floats(values: Sequence[object], field: str) -> list[float]:
    """Return ``values`` as floats; what is null or out of range is NaN or infinite."""
    numbers = []
    for i, value in enumerate(values):
        number = math.nan if value is None else as_number(value)
        if number is None:
            refuse("wrong_type", f"{field}[{i}]", value, "a number is needed")
        numbers.append(number)
    return numbers


def _edge_fault(edges: Sequence[float], field: str) -> MalformedRecord | None:
    """Return what is wrong with the edges, if anything is."""
    if not any(map(math.isfinite, edges)):
        return _left_out("not_finite", f"{field}.le_s", list(edges), "a finite edge is needed")
    for i, edge in enumerate(edges):
        where = f"{field}.le_s[{i}]"
        if math.isnan(edge) or (math.isinf(edge) and i < len(edges) - 1):
            return _left_out("not_finite", where, edge, "only the last edge may be null: infinity")
        if edge <= 0.0:
            return _left_out("negative", where, edge, "an upper edge above 0 is needed")
    for i, (before, edge) in enumerate(pairwise(edges), start=1):
        if edge <= before:
            reason = f"more than the edge before, {before!r}, is needed"
            return _left_out("not_ascending", f"{field}.le_s[{i}]", edge, reason)
    return None


def _count_fault(counts: Sequence[float], field: str) -> MalformedRecord | None:
    """Return what is wrong with the counts, if anything is."""
    for i, count in enumerate(counts):
        where = f"{field}.counts[{i}]"
        if not abs(count) <= _MAX_COUNT:
            return _left_out("not_finite", where, count, "a whole number up to 2**53 is needed")
        if count < 0.0:
            return _left_out("negative", where, count, "the increase since the batch before, 0 up")
        if not count.is_integer():
            return _left_out("not_whole", where, count, "samples are counted in whole numbers")
    return None


def _left_out(kind: str, field: str, got: object, allowed: str) -> MalformedRecord:
    return MalformedRecord(kind, field, f"got {got!r:.80}; {allowed}; the histogram is left out")
