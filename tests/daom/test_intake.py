"""Batches sent twice count once; missing ones are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.intake import Intake


def taking(*numbers, boot="boot-1"):
    """An intake that has taken ``numbers``."""
    intake = Intake()
    for seq in numbers:
        intake.see(boot, seq)
    return intake


def arrivals(*numbers):
    intake = Intake()
    return [intake.see("boot-1", seq) for seq in numbers]


ORDERS = {
    "in order": ([1, 2, 3], ["new", "new", "new"], 0),
    "from anywhere": ([4711], ["new"], 0),
    "sent twice": ([1, 2, 2], ["new", "new", "duplicate"], 0),
    "an old one sent twice": ([1, 2, 3, 1], ["new", "new", "new", "duplicate"], 0),
    "one missing": ([1, 3], ["new", "new"], 1),
    "two swapped": ([1, 3, 2], ["new", "new", "new"], 0),
    "swapped and sent twice": ([1, 3, 2, 2], ["new", "new", "new", "duplicate"], 0),
    "a leap": ([1, 1_000], ["new", "new"], 998),
    "too old to know": ([1, 1_000, 2], ["new", "new", "duplicate"], 998),
    "from before the first": ([5, 4, 3], ["new", "new", "new"], 0),
    "as old as can be known": ([1, 64, 2], ["new", "new", "new"], 61),
}


@pytest.mark.parametrize(("numbers", "expected", "missing"), ORDERS.values(), ids=ORDERS)
def test_every_number_counts_once(numbers, expected, missing):
    assert arrivals(*numbers) == expected
    assert taking(*numbers).missing == missing


@pytest.mark.parametrize(("boot", "seq"), [(None, 5), ("boot-1", None), (None, None)])
def test_batches_without_numbers_are_always_new(boot, seq):
    intake = Intake()

    assert [intake.see(boot, seq) for _ in range(3)] == ["new"] * 3
    assert intake.missing == 0


def test_a_new_boot_is_a_restart_and_counts_afresh():
    intake = taking(1, 2, 5)

    assert intake.see("boot-2", 1) == "restarted"
    assert intake.see("boot-2", 2) == "new"
    assert intake.see("boot-2", 1) == "duplicate"
    assert intake.missing == 0


def test_a_late_batch_of_the_boot_before_is_neither_a_restart_nor_lost():
    intake = taking(1, 3)
    intake.see("boot-2", 1)

    assert intake.see("boot-1", 2) == "new"
    assert intake.see("boot-1", 3) == "duplicate"
    assert intake.see("boot-2", 2) == "new"


def test_only_a_few_boots_are_remembered():
    intake = Intake()
    for boot in range(100):
        intake.see(f"boot-{boot}", 1)

    assert len(intake.boots) == 4
    assert intake.see("boot-99", 1) == "duplicate"


@given(numbers=st.lists(st.integers(0, 40), min_size=1, max_size=80))
def test_within_the_window_it_knows_as_much_as_a_set(numbers):
    seen = set()

    for seq, arrival in zip(numbers, arrivals(*numbers), strict=True):
        assert arrival == ("duplicate" if seq in seen else "new")
        seen.add(seq)


@given(numbers=st.permutations(range(1, 40)))
def test_nothing_is_missing_once_all_have_come(numbers):
    assert taking(0, *numbers).missing == 0


@given(numbers=st.lists(st.integers(0, 100), min_size=1))
def test_what_is_missing_is_never_less_than_nothing(numbers):
    for length in range(1, len(numbers) + 1):
        assert taking(*numbers[:length]).missing >= 0


@given(numbers=st.sets(st.integers(1, 60)))
def test_what_has_not_come_is_missing(numbers):
    expected = max(numbers, default=0) - len(numbers)

    assert taking(0, *numbers).missing == expected


@given(numbers=st.lists(st.integers(0, 2**53), max_size=50))
def test_what_it_remembers_fits_into_a_checkpoint(numbers):
    intake = taking(*numbers)

    assert all(0 <= seen.bits < 2**63 for run in intake.boots.values() for seen in run.values())


def test_the_frontends_of_a_run_count_each_for_itself():
    intake = Intake()

    assert [intake.see("boot-1", 1, "0"), intake.see("boot-1", 1, "1")] == ["new", "new"]
    assert intake.see("boot-1", 1, "1") == "duplicate"
    assert intake.see("boot-1", 4, "1") == "new"
    assert intake.missing == 2


def test_a_restart_of_many_frontends_is_one_restart():
    intake = Intake()
    for frontend in range(16):
        intake.see("boot-1", 1, str(frontend))

    arrivals = [intake.see("boot-2", 1, str(frontend)) for frontend in range(16)]

    assert arrivals == ["restarted"] + ["new"] * 15
    assert intake.see("boot-1", 2, "3") == "new"
