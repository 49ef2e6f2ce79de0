"""Does a setting that ``daom tune`` chose hold on what it has not seen? Here on many nights.

``python -m bench.tuning --nights 10`` draws nights as ``bench.tuning_recording`` does, each with
another seed, tunes on each as docs/tune.md does, and prints both settings on the part that judges.
About a minute a night.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.tuning_recording import DATA, write


def tuned(folder: Path, within: str) -> Any:
    """Return what ``daom tune --json`` says of the night in ``folder``."""
    command = [sys.executable, "-m", "daom", "tune", str(folder / "night.jsonl.gz"), "--json"]
    command += ["--incidents", str(folder / "incidents.yaml"), "--catch-within", within]
    command += ["--space", str(DATA / "tuning" / "space.yaml"), "--jobs", "1"]
    command += ["--output", str(folder / "tuned.yaml")]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if done.returncode not in {0, 1}:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def main() -> None:
    """Tune on each night; print a line for each, and how often the choice was the better one."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--catch-within", default="2m")
    given = parser.parse_args()
    totals = {name: [0, 0, 0] for name in ("default", "choice")}
    better = worse = 0
    for seed in range(given.first_seed, given.first_seed + given.nights):
        with TemporaryDirectory() as folder:
            write(Path(folder), seed)
            found = tuned(Path(folder), given.catch_within)
        words = []
        for name, total in totals.items():
            judged = found[name]["judged_on"]
            figures = (judged["caught_in_time"], judged["incidents"], judged["alerts"])
            total[:] = [before + now for before, now in zip(total, figures, strict=True)]
            words.append(f"{name} {figures[0]} of {figures[1]} in time, {figures[2]:2} alerts")
        better += found["beats_default"]
        same = found["choice"]["judged_on"] == found["default"]["judged_on"]
        worse += not found["beats_default"] and not same
        print(f"night {seed:2}: {'; '.join(words)}; {found['choice']['setting']}", flush=True)
    for name, (caught, incidents, alerts) in totals.items():
        print(f"{name}: {caught} of {incidents} in time, {alerts} alerts on the parts that judge")
    print(f"the choice was better on {better} of {given.nights} nights, worse on {worse}")


if __name__ == "__main__":
    main()
