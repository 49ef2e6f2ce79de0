"""How a stream's statistics vary while nothing is wrong, and when one is beyond that.

A likelihood-ratio statistic is chi-square with ``degrees`` degrees of freedom only for independent
samples. Where samples depend on one another, or the load moves by itself, it is larger, and some
directions of it are larger than others. Its ratio to its degrees over blocks of the stream's own
past gives a mean ``a`` and a variance ``v``; the statistic is then compared with the scaled
chi-square that has both, ``v / (2 a) * chi2(2 a^2 / v)`` (Satterthwaite 1946; Rao & Scott 1981,
second order). Since few blocks are known, ``v`` is drawn towards its value under independence, and
both are taken at an upper confidence limit.

Cost: about 3 microseconds a question. Sources: Satterthwaite 1946, doi:10.2307/3002019; Rao & Scott
1981, doi:10.1080/01621459.1981.10477633.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scipy.special import chdtri

_MAX_INFLATION: Final = 50.0
_MEMORY_BLOCKS: Final = 60
_CONFIDENCE_Z: Final = 1.5
_PRIOR_BLOCKS: Final = 4.0


@dataclass(slots=True)
class Statistic:
    """A statistic that is chi-square if nothing has changed and samples are independent.

    Attributes:
        value: Its value.
        degrees: Its degrees of freedom; 0 where there is nothing to compare.
        kl_nats: The divergence behind it, corrected for bias: what it is worth in practice.
    """

    value: float
    degrees: int
    kl_nats: float


@dataclass(slots=True)
class Dispersion:
    """Mean and mean square of ``value / degrees`` over the newest blocks."""

    mean: float = 1.0
    square: float = 1.0
    blocks: int = 0

    @property
    def inflation(self) -> float:
        """How much more the statistic varies than for independent samples: 1 or more."""
        return min(max(self.mean, 1.0), _MAX_INFLATION)

    def learn(self, statistic: Statistic) -> None:
        """Take the statistic of one more block."""
        if not statistic.degrees:
            return
        ratio = statistic.value / statistic.degrees
        self.blocks = min(self.blocks + 1, _MEMORY_BLOCKS)
        weight = 1.0 / self.blocks
        self.mean += weight * (ratio - self.mean)
        self.square += weight * (ratio * ratio - self.square)

    def exceeds(self, statistic: Statistic, level: float) -> bool:
        """Return whether ``statistic`` is larger than all but a share ``level`` would be."""
        degrees = statistic.degrees
        if not degrees:
            return False
        blocks = max(self.blocks, 1)
        independent = 2.0 * self.inflation**2 / degrees
        observed = max(self.square - self.mean * self.mean, 0.0)
        drawn = (_PRIOR_BLOCKS * independent + blocks * observed) / (_PRIOR_BLOCKS + blocks)
        likely = max(drawn, independent)
        mean = self.inflation + _CONFIDENCE_Z * math.sqrt(likely / blocks)
        # Of a scaled chi-square the error of its variance is that of few degrees, too.
        error = math.sqrt((2.0 + 6.0 * likely / (mean * mean)) / blocks)
        variance = likely * (1.0 + _CONFIDENCE_Z * error)
        limit = variance / (2.0 * mean) * float(chdtri(2.0 * mean * mean / variance, level))
        return statistic.value / degrees > limit
