"""The configuration of the limits; what they mean is ``daom.limits``."""

from __future__ import annotations

from pydantic import Field

from daom.fields import Section
from daom.limits import DEFAULT_LIMITS, Limits


class LimitsConfig(Section):
    """How much is held and taken, so that no producer can exhaust a worker or silence others."""

    cells: int = Field(default=DEFAULT_LIMITS.cells, ge=1)
    """Cells of a partition: those beyond are refused."""
    engines: int = Field(default=DEFAULT_LIMITS.engines, ge=1)
    """Engines of a cell: those beyond are refused until one has been silent for
    alerts.forget_after_s."""
    quantities: int = Field(default=DEFAULT_LIMITS.quantities, ge=1)
    """Gauges and GPU readings of an engine, by name: those beyond are left out."""
    changes: int = Field(default=DEFAULT_LIMITS.changes, ge=1)
    """Changes and maintenance windows of a cell that are still to take effect or to end."""
    columns: int = Field(default=DEFAULT_LIMITS.columns, ge=1)
    """Columns of a table, gauges or histograms of a batch, numbers of a GPU."""
    rows: int = Field(default=DEFAULT_LIMITS.rows, ge=1)
    """Rows of a table."""
    name_chars: int = Field(default=DEFAULT_LIMITS.name_chars, ge=16)
    """Characters of a name: a model, an engine, a column."""

    def limits(self) -> Limits:
        """Return them as the core takes them."""
        return Limits(**self.model_dump())
