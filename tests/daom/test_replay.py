"""What recordings say, as golden files: a changed golden is a changed behaviour."""

from collections import Counter

import pytest

from daom.cli.summary import clock, describe
from daom.config import Config
from daom.events import DriftVerdict
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import Sourced, Tally, replay
from tests.fleet import LIGHT, OVERLOAD, read_lines

RECORDINGS = {"light": LIGHT, "light_to_overload": OVERLOAD}
PRESETS = ("default", "sits2026")


def render(outputs):
    """One line an event; of the verdicts, which are many, only how many said what."""
    verdicts = Counter(
        (o.series.signal, o.series.engine or "(fleet)", str(o.drifting), o.direction)
        for o in outputs
        if isinstance(o, DriftVerdict)
    )
    lines = [" ".join([*said, str(count)]) for said, count in sorted(verdicts.items())]
    lines += [
        f"{clock(o.event_time_s)} {words}"
        for o in outputs
        if not isinstance(o, DriftVerdict) and (words := describe(o))
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_replay_matches_golden(name, preset, golden):
    signals = {n: s.model_dump() | {"slo_s": 2.0} for n, s in Config().signals.items()}
    config = Config.model_validate({"preset": preset, "signals": signals})
    values = (Sourced(str(line.number), line.value) for line in read_lines(RECORDINGS[name]))

    said = list(replay(values, Fold(cell_settings(config)), Tally()))

    golden.check(f"{name}.{preset}.txt", render(said))
