from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.strata import N_STRATA, stratum_index

FEW = settings(max_examples=100, derandomize=True, deadline=None)
BASES = [0.5, 2.0, 8.0, 32.0, 128.0, 512.0]


def stratum(value, base):
    return int(stratum_index(np.array([value], np.float32), base)[0])


def by_counting(value, base):
    """How many of base, 1.5 base, 2 base, 3 base, 4 base, ... ``value`` has reached."""
    ends = [base * 2.0**octave * half for octave in range(10) for half in (1.0, 1.5)]
    return sum(value >= end for end in ends[: N_STRATA - 1])


def test_prompt_tokens_fall_into_two_steps_an_octave():
    tokens = [0, 1, 127, 128, 191, 192, 255, 256, 383, 384, 100_000, 1e9]

    strata = stratum_index(np.array(tokens, np.float32), 128.0)

    assert strata.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 19, 19]


@FEW
@given(value=st.floats(0.0, 2.0**40, width=32), base=st.sampled_from(BASES))
def test_each_stratum_is_half_an_octave_of_the_workload(value, base):
    assert stratum(value, base) == by_counting(value, base)


@FEW
@given(
    values=st.lists(st.floats(0.0, 2.0**40, width=32), min_size=2, max_size=50),
    base=st.sampled_from(BASES),
)
def test_a_heavier_workload_is_never_in_a_lighter_stratum(values, base):
    strata = stratum_index(np.sort(np.array(values, np.float32)), base)

    assert (np.diff(strata) >= 0).all()
    assert ((strata >= 0) & (strata < N_STRATA)).all()


@pytest.mark.parametrize("tokens", [600.0, 5_000.0, 31.0])
def test_half_as_much_again_is_in_another_stratum(tokens):
    assert stratum(1.5 * tokens, 16.0) > stratum(tokens, 16.0)


@pytest.mark.parametrize("base", BASES)
def test_the_base_belongs_to_the_stratum_above_it(base):
    below = np.nextafter(np.float32(base), np.float32(0.0))

    assert (stratum(below, base), stratum(base, base)) == (0, 1)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -np.inf, 1e-45])
def test_no_workload_is_the_lightest(value):
    assert stratum(value, 32.0) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_what_cannot_be_bounded_is_the_heaviest(value):
    assert stratum(value, 32.0) == N_STRATA - 1


def test_its_input_is_left_alone():
    workload = np.array([1.0, 100.0], np.float32)

    stratum_index(workload, 32.0)

    assert workload.tolist() == [1.0, 100.0]


@pytest.mark.parametrize("base", [0.0, -2.0, 3.0, 100.0, np.inf, np.nan])
def test_a_base_that_is_no_power_of_two_is_refused(base):
    with pytest.raises(ValueError, match="base must be a power of two"):
        stratum_index(np.ones(1, np.float32), base)
