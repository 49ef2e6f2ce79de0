"""A checkpoint holds all of a cell, or is refused: there is no state that is nearly right."""

import hashlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daom.cell import CellSettings
from daom.codec import encode_output
from daom.config import Config, Preset
from daom.errors import CheckpointError
from daom.events import Alert
from daom.fold import Fold
from daom.presets import cell_settings
from streams.checkpoint import (
    MAGIC,
    VERSION,
    Checkpoint,
    Marker,
    decode_checkpoint,
    decode_marker,
    encode_checkpoint,
    encode_marker,
)
from streams.checkpoint import judged_by as how_judged
from tests.fleet import OVERLOAD, read_lines

PRESETS: tuple[Preset, ...] = ("default", "sits2026", "adwin", "kswin", "page_hinkley")
CUT_EVERY = 499
"""A prime, so that cuts fall anywhere in a pane."""
EARLY = 400
"""Lines after which a cell has something to save: small, so that many can be tried."""
MAX_DEMO_BYTES = 64 * 2**10
VERSION_AT = len(MAGIC)


@cache
def recorded() -> tuple[bytes, ...]:
    return tuple(line.value for line in read_lines(OVERLOAD))


@cache
def judged_by(preset: Preset) -> CellSettings:
    signals = {
        name: signal.model_dump() | {"slo_s": 2.0} for name, signal in Config().signals.items()
    }
    return cell_settings(Config.model_validate({"preset": preset, "signals": signals}))


def without(signal: str) -> CellSettings:
    kept = {name: known for name, known in Config().signals.items() if name != signal}
    return cell_settings(Config(signals=kept))


def saved(fold: Fold) -> bytes:
    [cell] = fold.cells.values()
    how = how_judged(fold.settings)
    return encode_checkpoint(
        Checkpoint(cell=cell.name, model=cell.model, offset=7, judged_by=how, state=cell.state)
    )


def restored(value: bytes, how: CellSettings) -> Fold:
    checkpoint = decode_checkpoint(value, how)
    fold = Fold(how)
    fold.restore(checkpoint.cell, checkpoint.model, checkpoint.state)
    return fold


def said(fold: Fold, values: tuple[bytes, ...]) -> list[list[bytes]]:
    """What each of ``values`` makes due, as it is published."""
    return [[encode_output(o) for o in fold.take(value, None).outputs] for value in values]


def open_panes(fold: Fold) -> int:
    [cell] = fold.cells.values()
    return sum(
        len(s.panes) for engine in cell.state.engines.values() for s in engine.series.values()
    )


@cache
def early_checkpoint() -> bytes:
    fold = Fold(judged_by("default"))
    said(fold, recorded()[:EARLY])
    return saved(fold)


# Going on


@pytest.mark.parametrize("preset", PRESETS)
def test_a_cell_restored_again_and_again_says_what_one_that_never_stopped_says(preset):
    """Cut at regular places, and right before and after every move of an alert."""
    values, how = recorded(), judged_by(preset)
    expected, alerting = [], set()
    steady = Fold(how)
    for number, value in enumerate(values):
        outputs = steady.take(value, None).outputs
        expected.append([encode_output(output) for output in outputs])
        if any(isinstance(output, Alert) for output in outputs):
            alerting |= {number, number + 1}

    cuts = sorted({*range(CUT_EVERY, len(values), CUT_EVERY), *alerting})
    stopped, found, open_at_cuts = Fold(how), [], []
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        found.extend(said(stopped, values[start:stop]))
        open_at_cuts.append(open_panes(stopped))
        stopped = restored(saved(stopped), how)

    assert found == expected
    assert len(alerting) >= 4
    assert sum(count > 0 for count in open_at_cuts) > len(cuts) // 2


@settings(max_examples=8)
@given(cuts=st.sets(st.integers(1, 599), max_size=40))
def test_wherever_it_is_cut_the_beginning_is_told_the_same(cuts):
    values, how = recorded()[:600], judged_by("default")
    stopped, found = Fold(how), []
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(values)], strict=True):
        found.extend(said(stopped, values[start:stop]))
        stopped = restored(saved(stopped), how)

    assert found == said(Fold(how), values)


def test_taking_a_checkpoint_leaves_the_cell_as_it_is():
    values, how = recorded()[:EARLY], judged_by("default")
    watched, found = Fold(how), []
    for value in values:
        found.extend(said(watched, (value,)))
        copy = restored(saved(watched), how)
        said(copy, values[:3])

    assert found == said(Fold(how), values)


def test_two_restored_from_one_checkpoint_share_nothing():
    value, how = early_checkpoint(), judged_by("default")
    first, second = restored(value, how), restored(value, how)
    rest = recorded()[EARLY : EARLY + 300]

    expected = said(first, rest)

    assert said(second, rest) == expected


def test_a_checkpoint_says_whose_it_is_and_how_far_it_reaches():
    checkpoint = decode_checkpoint(early_checkpoint(), judged_by("default"))

    assert (checkpoint.cell, checkpoint.model, checkpoint.offset) == (
        "llama-3.2-1b",
        "llama-3.2-1b",
        7,
    )
    assert set(checkpoint.judged_by) == {"ttft_s", "itl_s", "e2e_s"}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_checkpoint_of_the_demos_cell_is_small(preset):
    fold = Fold(judged_by(preset))
    said(fold, recorded())

    assert 1_000 < len(saved(fold)) < MAX_DEMO_BYTES


# A signal comes and goes


def test_a_signal_removed_from_the_configuration_is_forgotten():
    how = without("e2e_s")
    fold = restored(early_checkpoint(), how)
    [cell] = fold.cells.values()

    names = {name for engine in cell.state.engines.values() for name in engine.series}

    assert names == set(cell.state.fleet) == {"ttft_s"}
    assert b"e2e_s" not in b"".join(b"".join(o) for o in said(fold, recorded()[EARLY:2_000]))


def test_a_signal_that_comes_back_begins_anew():
    fold = restored(early_checkpoint(), without("e2e_s"))
    back = restored(saved(fold), judged_by("default"))
    outputs = b"\n".join(b"\n".join(o) for o in said(back, recorded()[EARLY:2_000]))

    assert b'"signal":"e2e_s"' in outputs


def test_the_signals_that_stay_say_the_same_when_another_is_removed():
    how, rest = without("e2e_s"), recorded()[EARLY:2_000]
    never_had_it = Fold(how)
    said(never_had_it, recorded()[:EARLY])

    assert said(restored(early_checkpoint(), how), rest) == said(never_had_it, rest)


# What cannot be trusted is refused


@settings(max_examples=200)
@given(at=st.integers(0), flip=st.integers(1, 255))
def test_any_byte_that_changed_is_an_error_and_never_a_wrong_state(at, flip):
    value = bytearray(early_checkpoint())
    value[at % len(value)] ^= flip

    with pytest.raises(CheckpointError):
        decode_checkpoint(bytes(value), judged_by("default"))


@settings(max_examples=50)
@given(length=st.integers(0))
def test_a_truncated_checkpoint_is_an_error(length):
    value = early_checkpoint()

    with pytest.raises(CheckpointError):
        decode_checkpoint(value[: length % len(value)], judged_by("default"))


def test_a_checkpoint_with_something_behind_it_is_an_error():
    with pytest.raises(CheckpointError, match="corrupt"):
        decode_checkpoint(early_checkpoint() + b"\0", judged_by("default"))


def test_a_corrupt_checkpoint_is_called_corrupt():
    value = early_checkpoint()
    with pytest.raises(CheckpointError, match="the checkpoint is corrupt: its digest differs"):
        decode_checkpoint(value[:-1] + bytes([value[-1] ^ 1]), judged_by("default"))


@pytest.mark.parametrize("value", [b"", b"DAO", MAGIC, b"\x1f\x8b" + bytes(40)])
def test_what_is_no_checkpoint_is_called_so(value):
    with pytest.raises(CheckpointError, match="not a checkpoint: it does not begin with DAOM"):
        decode_checkpoint(value, judged_by("default"))


def test_another_version_is_named_beside_the_one_that_can_be_read():
    value = bytearray(early_checkpoint())
    value[VERSION_AT] = VERSION + 1

    with pytest.raises(
        CheckpointError, match=f"version {VERSION + 1}; this one reads .* {VERSION}"
    ):
        decode_checkpoint(bytes(value), judged_by("default"))


def test_whole_bytes_that_hold_something_else_are_an_error():
    body = b"no deflate"
    digest = hashlib.blake2b(body, digest_size=16).digest()

    with pytest.raises(CheckpointError, match="cannot be read"):
        decode_checkpoint(MAGIC + bytes([VERSION]) + digest + body, judged_by("default"))


@pytest.mark.parametrize("preset", PRESETS[1:])
def test_a_checkpoint_of_another_detector_is_refused_naming_signal_detectors_and_way_out(preset):
    with pytest.raises(CheckpointError) as refused:
        decode_checkpoint(early_checkpoint(), judged_by(preset))

    message = str(refused.value)
    now = how_judged(judged_by(preset))["ttft_s"]
    for part in ("ttft_s", "kl with strata", now, "kafka.topic_prefix"):
        assert part in message


@pytest.mark.parametrize(
    "changed",
    [
        {"time": {"pane_s": 5.0}},
        {"signals": {"ttft_s": {"workload": None}}},
        {"signals": {"ttft_s": {"workload": "prompt_tokens", "workload_base": 64.0}}},
        {"signals": {"ttft_s": {"workload": "prompt_tokens", "column": "queue_s"}}},
    ],
)
def test_a_checkpoint_of_samples_taken_otherwise_is_refused(changed):
    settings = cell_settings(Config.model_validate(changed))

    with pytest.raises(CheckpointError, match="signal ttft_s was judged by"):
        decode_checkpoint(early_checkpoint(), settings)


def test_settings_that_no_state_depends_on_may_change():
    tuned = {"detector": {"min_kl_nats": 0.05}, "alerts": {"pending_s": 30.0}}

    checkpoint = decode_checkpoint(early_checkpoint(), cell_settings(Config.model_validate(tuned)))

    assert checkpoint.cell == "llama-3.2-1b"


# The marker


def test_a_marker_is_read_as_it_was_written_and_by_people_too():
    marker = Marker(offset=11, partitions=4, cells={"m": 9, "org/m/1": 11})

    assert decode_marker(encode_marker(marker)) == marker
    assert encode_marker(marker).startswith(b'{"offset":11,"partitions":4')


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"offset":"x","partitions":4,"cells":{}}', b"\xff"]
)
def test_what_is_no_marker_is_refused(value):
    with pytest.raises(CheckpointError, match="not a marker"):
        decode_marker(value)
