"""What DAOM costs, in one run: ``make bench`` (``ARGS=--short`` for a quick look).

The same samples go through the core, through a live worker, and one by one through river's
detectors, so that the ratios hold whatever the machine. Rates are of the best of several rounds on
one core; nothing here is asserted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import core, kafka, peers, replay


def main() -> None:
    """Run every benchmark and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer rounds and samples")
    parser.add_argument("--brokers", help="Kafka to use; else Apache Kafka or the embedded broker")
    arguments = parser.parse_args()
    rows: list[tuple[str, float, str, str]] = []
    rounds = 3 if arguments.short else 10
    rate = 0.0
    for a_pane in (2, 20, 100):
        rate = core.samples_per_s(rounds, a_pane)
        name = f"core, {a_pane} batches of 1,024 a pane"
        rows.append((name, rate, "samples/s", "target 50 M"))
    binned = core.bincount_per_s(rounds)
    rows.append(("numpy bincount of the same samples", binned, "samples/s", ""))
    judging = core.judging(rounds)
    rows.append(("judging a series at a pane's close, median", judging.median_us, "us", ""))
    rows.append(("the same, mean", judging.mean_us, "us", "target 200"))
    rows.append(("calibrating its evidence anew", judging.calibrated_us, "us", "target 50,000"))
    for batch_s in (0.25, 1.0):
        took = replay.day(batch_s, minutes=3.0 if arguments.short else 15.0)
        name = f"replay a day of an engine, messages of {batch_s:g} s"
        remark = f"{took.replay_s / took.bincount_s:.0f} times its bincount; target 60 s"
        rows.append((name, took.replay_s, "s", remark))
    for name, size in core.state_bytes().items():
        rows.append((f"state of a series, {name}", size, "bytes", "target 32 KiB"))
    batches = 4_000 if arguments.short else 20_000
    live, broker = kafka.samples_per_s(batches, arguments.brokers, Path(sys.executable))
    rows.append((f"Kafka to verdict, one worker, {broker}", live, "samples/s", "target 500,000"))
    for name, peer in peers.samples_per_s(short=arguments.short).items():
        rows.append((f"river {name}", peer, "samples/s", f"core is {rate / peer:,.0f} times that"))
    for name, value, unit, remark in rows:
        print(f"{name:45} {value:>15,.0f} {unit:10} {remark}")


if __name__ == "__main__":
    main()
