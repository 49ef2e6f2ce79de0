"""DAOM on the Numenta Anomaly Benchmark: ``python -m bench.nab``, about half a minute.

0 is silence, 100 an alert on the first row of every anomaly and no other. The published detectors'
thresholds were tuned on the streams that they are scored on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.nab.corpus import nab_folder
from bench.nab.scores import scores

_PROFILES = {
    "standard": "standard",
    "reward_low_FP_rate": "low FP",
    "reward_low_FN_rate": "low FN",
}


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Print the scores of every detector; 2 if the corpus is not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.nab", description=__doc__)
    parser.add_argument("--data", type=Path, default=nab_folder(), help="folder of the corpus")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(arguments_given)
    if not (arguments.data / "labels").is_dir():
        print(f"There is no corpus in {arguments.data}: --data or DAOM_DATA say where it is.")
        return 2
    found = scores(arguments.data)
    if arguments.json:
        print(json.dumps(found))
        return 0
    print(f"{'':36}" + "".join(f"{name:>10}" for name in _PROFILES.values()))
    for detector, by_profile in found.items():
        print(f"{detector:36}" + "".join(f"{by_profile[name]:10.1f}" for name in _PROFILES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
