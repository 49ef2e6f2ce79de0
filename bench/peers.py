"""River's detectors on the same samples, one by one as they take them."""

from __future__ import annotations

import time

from bench.samples import batches


def samples_per_s(*, short: bool) -> dict[str, float]:
    """Return updates a second of ADWIN, KSWIN and PageHinkley."""
    from river import drift  # noqa: PLC0415 - an extra.

    peers = {
        "ADWIN": (drift.ADWIN(), 300_000),
        "KSWIN": (drift.KSWIN(seed=1), 5_000),
        "PageHinkley": (drift.PageHinkley(), 200_000),
    }
    values = [v for record in batches(300) for v in record.steps.columns["itl_s"].tolist()]
    rates = {}
    for name, (detector, count) in peers.items():
        wanted = count // 5 if short else count
        began_s = time.perf_counter()
        for value in values[:wanted]:
            detector.update(value)
        rates[name] = wanted / (time.perf_counter() - began_s)
    return rates
