"""Tolerance files: what they say, and every mistake in them."""

import pytest

from daom.errors import ConfigError
from daom.tolerances import MEAN, Statistic, read_tolerances, statistic_of, tolerance_of
from detectors.decision import Tolerance


@pytest.fixture
def read(tmp_path):
    def written(text):
        path = tmp_path / "tolerances.yaml"
        path.write_text(text, encoding="utf-8")
        return read_tolerances(path)

    return written


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("5ms", "ttft_s", Tolerance(0.005, None)),
        ("0.005", "ttft_s", Tolerance(0.005, None)),
        ("250 us", "itl_s", Tolerance(0.00025, None)),
        ("10%", "ttft_s", Tolerance(0.1, None, relative=True)),
        ("+-10%", "ttft_s", Tolerance(0.1, 0.1, relative=True)),
        ("±5ms", "ttft_s", Tolerance(0.005, 0.005)),
        ("-1s", "ttft_s", Tolerance(None, 1.0)),
        ("0.3", "accuracy", Tolerance(0.3, 0.3)),
        ("+0.3", "accuracy", Tolerance(0.3, None)),
        ("-0.3", "accuracy", Tolerance(None, 0.3)),
        ("1e-3", "accuracy", Tolerance(0.001, 0.001)),
    ],
)
def test_a_tolerance_says_how_far_and_which_way(text, column, expected):
    found = tolerance_of(text, column)

    assert found.relative == expected.relative
    assert (found.increase, found.decrease) == pytest.approx((expected.increase, expected.decrease))


@pytest.mark.parametrize("text", ["", "fast", "0", "-0%", "nan", "1e999", "5 ms %", "5parsec"])
def test_what_is_no_tolerance_is_refused_with_what_is(text):
    with pytest.raises(ValueError, match="got "):
        tolerance_of(text, "ttft_s")


def test_a_time_s_unit_is_for_times_alone():
    with pytest.raises(ValueError, match="the unit of accuracy may be % or none"):
        tolerance_of("5ms", "accuracy")


def test_statistics_are_the_mean_and_any_quantile():
    assert statistic_of("mean") == MEAN
    assert statistic_of("P95") == Statistic("p95", 0.95)
    assert statistic_of("p99.9") == Statistic("p99.9", pytest.approx(0.999))
    assert [statistic_of(name) for name in ("p0", "p100", "max", "95", "p")] == [None] * 5


def test_a_file_keeps_the_sign_that_was_written(read):
    tolerances = read("accuracy: {mean: +0.3}\nttft_s: {p95: 5ms, p99: 10%}\n")

    assert tolerances["accuracy"][MEAN].tolerance == Tolerance(0.3, None)
    assert [wanted.text for wanted in tolerances["ttft_s"].values()] == ["5ms", "10%"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a map is needed"),
        ("- ttft_s", "a map is needed"),
        ("ttft_s: 5ms", "ttft_s: a map from statistics is needed"),
        ("ttft_s: {}", "ttft_s: a map from statistics is needed"),
        ("ttft_s: {p101: 5ms}", "ttft_s.p101: unknown; allowed are mean"),
        ("ttft_s: {p95: [5ms]}", "ttft_s.p95: one tolerance is needed"),
        ("ttft_s: {p95: soon}", "ttft_s.p95: got 'soon'"),
        ("ttft_s: {p95: 5ms, P95: 6ms}", "ttft_s.P95: is there twice"),
        ("ttft_s: {p95: 5ms", "not YAML"),
    ],
)
def test_a_mistake_in_a_file_is_named(read, text, message):
    with pytest.raises(ConfigError, match=message):
        read(text)


def test_every_mistake_is_a_line_of_its_own(read):
    with pytest.raises(ConfigError) as error:
        read("ttft_s: {p95: soon, max: 1s}\nitl_s: 3")

    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_tolerances(tmp_path / "none.yaml")
