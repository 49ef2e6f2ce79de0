"""Break a fleet at seeded moments, and see that nothing is lost or said twice.

``make chaos`` runs 30 rounds with a seed that it draws and prints, ``make chaos ROUNDS=1000
SEED=7`` as many as you like with a known one. After each round the ids and bytes of all outputs
must be those of a replay, and Alertmanager must show what fires. It needs the launcher of an Apache
Kafka (DAOM_KAFKA_SCRIPT) and Alertmanager; ``make chaos ARGS=--embedded`` takes the embedded broker
instead, and leaves out the faults of the broker itself, which would come back without its data.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.chaos.runner import Round, rounds
from tests.seeds import seed_of, seeded_parser


def main() -> int:
    """Run; 1 if the books do not agree after some round."""
    parser = seeded_parser("python -m tests.chaos", __doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker")
    parser.add_argument("--folder", type=Path, help="where data and logs are kept; else nowhere")
    arguments = parser.parse_args()
    # Brokers go away here by the dozen; what matters of it is in the workers' logs.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    seed = seed_of(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        last = None
        for last in rounds(folder, seed, arguments.rounds, embedded=arguments.embedded):
            print(words(last), flush=True)
    return 1 if last is None or last.wrong else 0


def words(done: Round) -> str:
    """Return one line about a round."""
    head = f"round {done.number:4}  {done.fault:26} {done.took_s:6.1f} s"
    if done.wrong:
        return f"{head}  WRONG: {done.wrong}"
    return (
        f"{head}  {done.outputs} outputs agree, {done.firing} alerts fire; "
        f"{done.repeats} said again, the same; {done.restarts} restarts"
    )


if __name__ == "__main__":
    sys.exit(main())
