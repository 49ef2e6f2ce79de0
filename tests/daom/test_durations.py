"""Durations as people write them."""

import re

import pytest

from daom.durations import DURATION_PATTERN, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1h30m", 5_400.0), ("1.5m", 90.0), ("2d", 172_800.0)]
)
def test_a_duration_is_a_sum_of_units(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "5 m", "m", "-5m", "5m1h"])
def test_what_is_no_duration_is_none(text):
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["90s", "1h30m", "1.5m", "2d"])
def test_an_editor_takes_a_duration(text):
    assert re.search(DURATION_PATTERN, text)


@pytest.mark.parametrize("text", ["90", "5 m", "m", "-5m", "5m1h"])
def test_an_editor_refuses_what_is_none(text):
    assert not re.search(DURATION_PATTERN, text)
