"""Other names, the same verdicts."""

from collections import defaultdict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daom.anonymise import Anonymiser
from daom.codec import decode, encode_json, encode_output
from daom.config import Config
from daom.events import Alert, GpuSample, Source, is_cell_of
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import Sourced
from tests.daom.messages import GOOD, written
from tests.daom.stories import MODEL, T0, at, by_time, calm, change, chapter, slower, story

MAX_BYTES = 2**20
SECRETS = ("llama", "acme", "gpu-7", "node", "canary", "GPU-1", "eu-")


def named(record, engine=None, **names):
    source = msgspec.structs.replace(record.source, engine=engine or record.source.engine, **names)
    return msgspec.structs.replace(record, source=source)


def the_story():
    """A fleet: after a deployment one engine slows, and its GPU is throttled."""
    batches = [
        named(r, f"acme/gpu-7/{r.source.engine}", host=f"node-{r.source.engine}", tenant="acme")
        for r in story(calm(14), chapter(6, e2=slower(2.5)), calm(3))
    ]
    hot = {"uuid": "GPU-1", "sm_clock_mhz": 600.0, "temperature_c": 91.0, "xid_total": 0.0}
    samples = [
        GpuSample(
            source=Source(model=MODEL, host=f"node-{engine}"),
            time_s=at(14.0) + 10.0 * n,
            gpus=(hot | {"clocks_event_reasons": "SW Thermal Slowdown", "xid_total": float(n)},),
        )
        for n in range(36)
        for engine in ("e2",)
    ]
    deployed = change("deploy", at(13.9), version="canary-9", detail="acme's new kernels")
    return by_time(batches, samples, [deployed])


def said(records, rename=None):
    """What a replay says, by event time; names as ``rename`` has them."""
    fold = Fold(cell_settings(Config()))
    lines = [
        encode_output(output).decode()
        for record in records
        for output in fold.take(encode_json(record), None).outputs
    ]
    by_time_s = defaultdict(set)
    for line in lines:
        for old, new in (rename or {}).items():
            line = line.replace(old, new)  # noqa: PLW2901
        output = msgspec.json.decode(line)
        for made_of_names in ("id", "fingerprint", "previous_hash", "hash"):
            output.pop(made_of_names, None)
        output.get("annotations", {}).pop("incident", None)
        by_time_s[output["event_time_s"]].add(msgspec.json.encode(output))
    return by_time_s


def names(renaming, records):
    """What everything is called: the longest first, so that no name is cut in two."""
    found = {}
    for record in records:
        source = record.source
        for kind in ("model", "engine", "version", "boot", "tenant", "host"):
            if word := getattr(source, kind):
                found[word] = renaming.name(kind, word)
        for kind in ("version", "detail"):
            if word := getattr(record, kind, None):
                found[word] = renaming.name(kind, word)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def test_an_anonymised_recording_says_the_same_under_other_names():
    records, renaming = the_story(), Anonymiser(b"salt")
    expected = said(records, names(renaming, records))

    found = said([renaming.record(record) for record in records])

    assert found == expected
    fired = [line for lines in found.values() for line in lines if b'"firing"' in line]
    assert fired


def test_no_name_is_left():
    lines = [encode_json(Anonymiser(b"s").record(record)) for record in the_story()]

    assert not [line for line in lines if any(word.encode() in line for word in SECRETS)]


words = st.text(min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(model=words, other=words, engine=words, salt=st.binary(max_size=100))
def test_what_was_one_stays_one_and_what_was_two_stays_two(model, other, engine, salt):
    renaming = Anonymiser(salt)

    def renamed(name, **more):
        return renaming.record(GpuSample(source=Source(model=name, **more), time_s=T0)).source

    one, same = renamed(model, engine=engine), renamed(model, engine=engine, cell=f"{model}/3")
    assert (one.model, one.engine_name) == (same.model, same.engine_name)
    assert is_cell_of(same.cell, same.model)
    assert (renamed(other).model == one.model) == (other == model)
    assert (renamed(model).engine_name == one.engine_name) == (engine == model)


def test_a_key_that_is_no_cell_of_the_model_stays_none():
    line = Anonymiser(b"s").line_of(Sourced("w", written(GOOD), "other", T0), MAX_BYTES)

    source = decode(line).record.source
    assert not is_cell_of(source.cell, source.model)


def test_another_salt_gives_other_names():
    assert Anonymiser(b"a").name("model", "m") == Anonymiser(b"a").name("model", "m")
    assert Anonymiser(b"a").name("model", "m") != Anonymiser(b"b").name("model", "m")


def test_what_daom_understands_stays():
    gpu = {"uuid": "GPU-1", "name": "H200", "throttle": "active", "power_w": 300.0}

    [found] = (
        Anonymiser(b"s").record(GpuSample(source=Source(model="m"), time_s=T0, gpus=(gpu,))).gpus
    )

    assert (found["throttle"], found["power_w"]) == ("active", 300.0)
    assert found["uuid"].startswith("gpu-")
    assert found["name"].startswith("word-")


@pytest.mark.parametrize("value", [None, b"junk"])
def test_what_cannot_be_used_is_not_copied(value):
    assert Anonymiser(b"s").line_of(Sourced("w", value, "m", T0), MAX_BYTES) is None


def test_how_requests_ended_stays_and_other_words_do_not():
    fields = GOOD | {"requests": GOOD["requests"] | {"user": ["bob", None]}}

    record = decode(Anonymiser(b"s").line_of(Sourced("w", written(fields)), MAX_BYTES)).record

    assert record.requests.text["finish_reason"] == ["stop", None]
    [user, nobody] = record.requests.text["user"]
    assert user.startswith("user-")
    assert nobody is None


def test_alerts_fire_in_the_story():
    outputs = [o for lines in said(the_story()).values() for o in lines]

    assert any(Alert.__struct_config__.tag == msgspec.json.decode(o)["type"] for o in outputs)
