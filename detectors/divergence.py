"""Kullback-Leibler divergence of binned samples: smoothing, bias, and the chain rule.

KL has no symmetry, so its two directions are named: ``KL(current || reference)`` asks how
surprising the current samples are to somebody who knows the reference (the default preset);
``KL(base || current)`` asks the opposite (preset sits2026).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled

Floats = NDArray[np.float64]


def kl_divergence(p: Floats, q: Floats) -> float:
    """Return KL(p || q), the information lost when q stands in for p.

    Args:
        p: Distribution, shape ``(n_bins,)``, not negative, summing to 1.
        q: Distribution, same shape, positive, summing to 1.

    Returns:
        Divergence in nats; 0.0 exactly when ``p`` equals ``q``.

    Raises:
        ValueError: If the shapes differ, or an entry of ``q`` is <= 0 or of ``p`` is < 0.

    Source:
        Kullback & Leibler (1951). doi:10.1214/aoms/1177729694
    """
    if p.shape != q.shape:
        raise ValueError(f"p has shape {p.shape} but q has shape {q.shape}")
    if q.min() <= 0.0 or p.min() < 0.0:
        raise ValueError("q must be positive and p not negative; smooth the counts first")
    occupied = p > 0.0
    return float(np.sum(p[occupied] * np.log(p[occupied] / q[occupied])))


PSEUDOCOUNT: Final = 0.5
"""Added to every bin of a reference, so that an empty one does not make KL infinite."""


def smoothed(counts: Floats, pseudocount: float = PSEUDOCOUNT) -> Floats:
    """Return the probabilities behind ``counts``, none of them zero.

    ``pseudocount`` values are added to every bin, so that one empty bin does not make KL infinite.

    Source:
        Krichevsky & Trofimov (1981), doi:10.1109/TIT.1981.1056331, for one half.
    """
    padded = counts + pseudocount
    probabilities: Floats = padded / padded.sum()
    return probabilities


def kl_bias_nats(degrees: float, n: float, m: float) -> float:
    """Return by how much the plug-in KL of two samples of one distribution exceeds zero.

    Args:
        degrees: Degrees of freedom, bins - 1.
        n: Effective observations in the current sample.
        m: The same in the reference.

    Source:
        The expectation of the likelihood-ratio statistic, Wilks (1938),
        doi:10.1214/aoms/1177732360; Miller (1955) for entropy.
    """
    return 0.5 * degrees * (1.0 / n + 1.0 / m)


def kl_from_logs(current: Floats, log_reference: Floats) -> float:
    """Return KL(current || reference) in nats, of counts and logarithms of probabilities.

    Args:
        current: Counts, shape ``(n_bins,)``, not negative, not all zero.
        log_reference: Logarithms of the reference's probabilities, the same shape.
    """
    return _kl_from_logs(current, log_reference)


@compiled
def _kl_from_logs(current: Floats, log_reference: Floats) -> float:
    n, nats = float(current.sum()), 0.0
    for index in range(current.size):
        if current[index] > 0.0:
            nats += current[index] * (math.log(current[index] / n) - log_reference[index])
    return nats / n


class KlParts(NamedTuple):
    """KL(current || reference) of workload and latency together, split by the chain rule.

    Attributes:
        workload_nats: KL of the workload groups.
        service_nats: Expected KL of latency given its group, under the current workload.
        group_nats: KL of latency within each group; 0 where it has no current samples.
        group_samples: Current samples of each group.
    """

    workload_nats: float
    service_nats: float
    group_nats: Floats
    group_samples: Floats


def log_probabilities(
    reference: Floats, group_starts: NDArray[np.integer]
) -> tuple[Floats, Floats]:
    """Return the logarithms of smoothed probabilities: of each bin given its group, of each group.

    Args:
        reference: Counts, shape ``(n_bins,)``.
        group_starts: Where each group's bins begin, ascending from 0.
    """
    return _log_probabilities(reference, group_starts)


@compiled
def _log_probabilities(
    reference: Floats, group_starts: NDArray[np.integer]
) -> tuple[Floats, Floats]:
    given, groups = np.log(reference + PSEUDOCOUNT), np.empty(group_starts.size)
    for group in range(group_starts.size):
        last = group + 1 == group_starts.size
        start, end = group_starts[group], reference.size if last else group_starts[group + 1]
        groups[group] = reference[start:end].sum() + PSEUDOCOUNT * (end - start)
        given[start:end] -= np.log(groups[group])
    return given, np.log(groups / groups.sum())


def kl_by_chain_rule(
    current: Floats, log_given: Floats, log_group: Floats, group_starts: NDArray[np.int64]
) -> KlParts:
    """Return the plug-in KL of (workload, latency), split exactly into its two parts.

    ``KL(w, x) = KL(w) + sum_w p(w) KL(x | w)``: a change of the prompt mix is in the first part,
    the same prompts served slower in the second.

    Args:
        current: Counts, shape ``(n_bins,)``: the bins of the first workload group, of the second...
        log_given: Logarithm of the reference's probability of each bin given its group.
        log_group: Logarithm of the reference's probability of each group, shape ``(n_groups,)``.
        group_starts: Where each group's bins begin, ascending from 0.

    Source:
        Cover & Thomas, Elements of Information Theory, theorem 2.5.3.
    """
    return KlParts(*_by_chain_rule(current, log_given, log_group, group_starts))


@compiled
def _by_chain_rule(
    current: Floats, log_given: Floats, log_group: Floats, group_starts: NDArray[np.int64]
) -> tuple[float, float, Floats, Floats]:
    """Return the fields of ``KlParts``."""
    samples, nats = np.zeros(group_starts.size), np.zeros(group_starts.size)
    service = 0.0
    for group in range(group_starts.size):
        last = group + 1 == group_starts.size
        end = current.size if last else group_starts[group + 1]
        mine = current[group_starts[group] : end]
        samples[group] = mine.sum()
        if samples[group] > 0.0:
            nats[group] = _kl_from_logs(mine, log_given[group_starts[group] : end])
            service += samples[group] * nats[group]
    return _kl_from_logs(samples, log_group), service / samples.sum(), nats, samples
