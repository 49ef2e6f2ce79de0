"""Seeds of commands that break things at random: drawn and printed, so that it can be repeated."""

from __future__ import annotations

import argparse
import secrets


def seeded_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows ``--seed``."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed unless given")
    return parser


def seed_of(arguments: argparse.Namespace) -> int:
    """Return the seed, given or drawn, and print it."""
    seed = secrets.randbelow(10**6) if arguments.seed is None else int(arguments.seed)
    print(f"seed {seed}", flush=True)
    return seed
