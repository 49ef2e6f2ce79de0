from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.strata import N_STRATA, STRATA_A_LEVEL, stratum_index

FEW = settings(max_examples=100, derandomize=True, deadline=None)
BASES = [0.5, 2.0, 8.0, 32.0, 128.0, 512.0]


def stratum(value, base, part=None):
    of_part = None if part is None else np.array([part], np.float32)
    return int(stratum_index(np.array([value], np.float32), base, of_part)[0])


def by_counting(value, base):
    """How many of base, 1.25 base, 1.5 base, 1.75 base, 2 base, ... ``value`` has reached."""
    ends = [base * 2.0**octave * step for octave in range(10) for step in (1.0, 1.25, 1.5, 1.75)]
    return sum(value >= end for end in ends[: STRATA_A_LEVEL - 1])


def test_prompt_tokens_fall_into_four_steps_an_octave():
    tokens = [0, 127, 128, 159, 160, 192, 224, 255, 256, 320, 100_000, 1e9]

    strata = stratum_index(np.array(tokens, np.float32), 128.0)

    assert strata.tolist() == [0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 39, 39]


@FEW
@given(value=st.floats(0.0, 2.0**40, width=32), base=st.sampled_from(BASES))
def test_each_stratum_is_a_quarter_of_an_octave_of_the_workload(value, base):
    assert stratum(value, base) == by_counting(value, base)


@FEW
@given(
    values=st.lists(st.floats(0.0, 2.0**40, width=32), min_size=2, max_size=50),
    base=st.sampled_from(BASES),
)
def test_a_heavier_workload_is_never_in_a_lighter_stratum(values, base):
    strata = stratum_index(np.sort(np.array(values, np.float32)), base)

    assert (np.diff(strata) >= 0).all()
    assert ((strata >= 0) & (strata < STRATA_A_LEVEL)).all()


@pytest.mark.parametrize("tokens", [600.0, 5_000.0, 31.0])
def test_a_quarter_as_much_again_is_in_another_stratum(tokens):
    assert stratum(1.25 * tokens, 16.0) > stratum(tokens, 16.0)


@pytest.mark.parametrize("base", BASES)
def test_the_base_belongs_to_the_stratum_above_it(base):
    below = np.nextafter(np.float32(base), np.float32(0.0))

    assert (stratum(below, base), stratum(base, base)) == (0, 1)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -np.inf, 1e-45])
def test_no_workload_is_the_lightest(value):
    assert stratum(value, 32.0) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_what_cannot_be_bounded_is_the_heaviest(value):
    assert stratum(value, 32.0) == STRATA_A_LEVEL - 1


# The part that costs little


@pytest.mark.parametrize(
    ("share", "level"), [(0.0, 0), (0.24, 0), (0.25, 1), (0.74, 1), (0.75, 2), (1.0, 2), (3.0, 2)]
)
def test_the_share_of_cached_tokens_makes_three_levels(share, level):
    tokens = 1_000.0

    assert stratum(tokens, 32.0, share * tokens) == stratum(tokens, 32.0) + level * STRATA_A_LEVEL


@FEW
@given(
    values=st.lists(st.floats(1.0, 2.0**40, width=32), min_size=1, max_size=50),
    parts=st.lists(st.floats(0.0, 2.0**40, width=32), min_size=50, max_size=50),
)
def test_rows_of_the_same_workload_are_apart_by_their_cached_share_alone(values, parts):
    workload = np.array(values, np.float32)
    part = np.array(parts[: workload.size], np.float32)

    strata = stratum_index(workload, 32.0, part)

    np.testing.assert_array_equal(stratum_index(workload, 32.0), strata % STRATA_A_LEVEL)
    assert ((strata >= 0) & (strata < N_STRATA)).all()


def test_without_a_part_and_with_one_that_was_not_measured_nothing_is_cached():
    assert stratum(1_000.0, 32.0, np.nan) == stratum(1_000.0, 32.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, 0.0])
@pytest.mark.parametrize("part", [np.nan, np.inf, -np.inf, -1.0, 0.0])
def test_whatever_the_columns_hold_there_is_a_stratum(value, part):
    assert 0 <= stratum(value, 32.0, part) < N_STRATA


def test_its_input_is_left_alone():
    workload, part = np.array([1.0, 100.0], np.float32), np.array([1.0, 50.0], np.float32)

    stratum_index(workload, 32.0, part)

    assert (workload.tolist(), part.tolist()) == ([1.0, 100.0], [1.0, 50.0])


@pytest.mark.parametrize("base", [0.0, -2.0, 3.0, 100.0, np.inf, np.nan])
def test_a_base_that_is_no_power_of_two_is_refused(base):
    with pytest.raises(ValueError, match="base must be a power of two"):
        stratum_index(np.ones(1, np.float32), base)
