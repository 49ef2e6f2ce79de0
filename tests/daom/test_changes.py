import pytest

from daom.changes import CHANGE_KINDS, change_event
from daom.codec import decode, encode_json
from daom.errors import MalformedRecord
from daom.events import ChangeEvent, Source
from daom.times import parse_time

NOON_S = 1_796_040_000.0
DEPLOY = {"model": "m", "kind": "deploy"}


def test_a_deploy_is_of_the_whole_model_and_of_now():
    change = change_event({**DEPLOY, "version": "v2", "detail": "canary", "engine": None}, NOON_S)

    assert change == ChangeEvent(
        source=Source(model="m"), time_s=NOON_S, kind="deploy", version="v2", detail="canary"
    )


@pytest.mark.parametrize("at", ["2026-11-30T12:00:00Z", "2026-11-30T13:00:00+01:00", NOON_S])
def test_the_time_may_be_told(at):
    assert change_event({**DEPLOY, "at": at}, 0.0).time_s == NOON_S


@pytest.mark.parametrize("until", ["45m", "2026-11-30T12:45:00", NOON_S + 2_700.0])
def test_a_maintenance_has_an_end_or_a_length(until):
    fields = {"model": "m", "kind": "maintenance", "until": until}

    assert change_event(fields, NOON_S).until_s == NOON_S + 2_700.0


@pytest.mark.parametrize("kind", CHANGE_KINDS)
def test_every_kind_is_what_the_codec_reads(kind):
    until = "1h" if kind == "maintenance" else None
    fields = {"model": "m", "kind": kind, "engine": "e", "detail": "words", "until": until}

    change = change_event(fields, NOON_S)

    assert decode(encode_json(change)) == (change, ())


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"kind": "deploy"}, "model", "needed"),
        ({"model": "m"}, "kind", "needed"),
        ({"model": "m", "kind": "deploi"}, "kind", "got 'deploi'; allowed: deploy, config"),
        ({"model": "m", "kind": "stop"}, "engine", "needed"),
        ({**DEPLOY, "model": 7}, "model", "got 7"),
        ({**DEPLOY, "detail": " "}, "detail", "1 to 1000 characters"),
        ({**DEPLOY, "egine": "e"}, "egine", "unknown; allowed: model, kind"),
        ({**DEPLOY, "at": "noon"}, "at", "got 'noon'; needed: ISO 8601"),
        ({**DEPLOY, "at": True}, "at", "got True"),
        ({**DEPLOY, "at": float("nan")}, "at", "got nan"),
        ({**DEPLOY, "at": NOON_S * 1_000.0}, "at", "got 1796040000000.0"),
        ({**DEPLOY, "until": "1h"}, "until", "only maintenance has an end"),
        ({"model": "m", "kind": "maintenance"}, "until", "needed for maintenance: a duration"),
        ({"model": "m", "kind": "maintenance", "until": "1"}, "until", "to end after it begins"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_allowed(fields, field, words):
    with pytest.raises(MalformedRecord) as refused:
        change_event(fields, NOON_S)

    assert refused.value.field == field
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["", "noon", "nan", "inf", "2026-13-01"])
def test_what_is_no_time_is_none(text):
    assert parse_time(text) is None
