"""Send a million broken messages through codec and pipeline: ``make fuzz`` (MESSAGES=, SEED=).

None may raise; each is used, or refused with a reason; no output holds a number that is none.
Prints what was refused, by kind; the same seed sends the same messages.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from itertools import islice

from rich.console import Console
from rich.progress import Progress

from daom.config import Config
from daom.presets import cell_settings
from tests.fuzz.mutations import mutated, originals
from tests.fuzz.survivor import Survivor
from tests.seeds import seed_of, seeded_parser


def main() -> int:
    """Run; raises what the pipeline raises, with the message that did it in its notes."""
    parser = seeded_parser("python -m tests.fuzz", __doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    arguments = parser.parse_args()
    logging.disable()
    seed = seed_of(arguments)
    settings, counts = cell_settings(Config()), Counter[str]()
    rng, pool = random.Random(seed), originals()
    sent = 0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("messages", total=arguments.messages)
        while sent < arguments.messages:
            # A new fold each time: cells full of invented engines say nothing new.
            survivor = Survivor(settings)
            for value in islice(mutated(rng, pool), arguments.messages - sent):
                survivor.take(value)
                sent += 1
            counts.update(survivor.counts)
            progress.update(task, completed=sent)
    print(f"{sent:,} messages")
    for what, count in counts.most_common():
        print(f"{what:24} {count:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
