"""``daom compare`` as a user meets it: what it prints, and how it exits."""

import json
import math
import re
from itertools import chain

import numpy as np
import pytest

from connectors.recordings import write_recording
from daom.codec import encode_json
from daom.events import ChangeEvent, Source
from daom.tolerances import read_tolerances
from tests.daom.conftest import Done
from tests.daom.served import MODEL, START_S, served
from tests.fleet import LIGHT, OVERLOAD
from tests.kafka_servers import REPOSITORY

PAGE = REPOSITORY / "docs" / "compare.md"
BEGIN, END = "<!-- begin output -->", "<!-- end output -->"


class Told(Done):
    """What ``daom compare`` has told."""

    @property
    def found(self):
        return json.loads(self.out, parse_constant=pytest.fail)

    def statistic(self, name, signal="ttft_s"):
        of_signal = next(s for s in self.found["signals"] if s["signal"] == signal)
        return next(s for s in of_signal["statistics"] if s["name"] == name)


@pytest.fixture
def compare(daom, monkeypatch):
    """Run ``daom compare`` in this process, in a terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *arguments: Told(*daom("compare", *arguments))


@pytest.fixture
def recording(tmp_path):
    """Write a recording of the batches of some engines."""

    def write(name, *engines):
        path = tmp_path / f"{name}.jsonl"
        write_recording(path, chain(*engines))
        return path

    return write


@pytest.fixture
def tolerances(tmp_path):
    def write(text):
        path = tmp_path / "tolerances.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def both(recording, **other):
    return recording("a", served(1)), recording("b", served(2, **other))


def test_without_tolerances_differences_are_told_and_it_is_done(compare, recording):
    done = compare(*both(recording, slower=1.3))

    assert done.code == 0
    assert "p95, ms" in done.out
    assert "service" in done.out
    assert "within" not in done.out


def test_two_halves_of_one_stream_are_within_and_exit_with_0(compare, recording, tolerances):
    done = compare(*both(recording), "--tolerances", tolerances("ttft_s: {p50: 10%, p95: 20%}"))

    assert done.code == 0
    assert "within: every difference is within its tolerance" in done.out


def test_a_regression_is_beyond_and_exits_with_1(compare, recording, tolerances):
    limits = tolerances("ttft_s: {p50: 5%, p95: 10%}")
    done = compare(*both(recording, slower=1.5), "--tolerances", limits, "--json")

    assert done.code == 1
    assert done.found["outcome"] == "beyond"
    assert done.statistic("p95")["verdict"] == "beyond"
    assert done.statistic("p95")["attribution"] == "service"


def test_an_improvement_is_within(compare, recording, tolerances):
    limits = tolerances("ttft_s: {p50: 1ms, p95: 1%}")

    assert compare(*both(recording, slower=0.7), "--tolerances", limits).code == 0


def test_what_takes_more_samples_exits_with_3_and_says_how_many(compare, recording, tolerances):
    pair = both(recording)
    done = compare(*pair, "--tolerances", tolerances("ttft_s: {p99: 1%}"), "--json")
    told = compare(*pair, "--tolerances", tolerances("ttft_s: {p99: 1%}"))

    assert (done.code, told.code) == (3, 3)
    assert done.statistic("p99")["verdict"] == "undecided"
    assert done.statistic("p99")["needed"]["b_samples"] > 2_400
    assert f"B {done.statistic('p99')['needed']['b_samples']:,} samples" in " ".join(
        told.out.split()
    )


def test_a_longer_prompt_mix_is_no_regression_unless_it_is_asked_for(
    compare, recording, tolerances
):
    pair = both(recording, longer=1.5)
    limits = tolerances("ttft_s: {p50: 10%, mean: 10%}")
    done = compare(*pair, "--tolerances", limits, "--json")
    raw = compare(*pair, "--tolerances", limits, "--judge", "raw", "--json")

    assert (done.code, raw.code) == (0, 1)
    assert done.statistic("p50")["raw"]["low"] > 0.0
    assert done.statistic("p50")["attribution"] == "workload"
    assert done.found["signals"][0]["workload_changed"]
    assert not done.found["signals"][0]["service_changed"]


def test_engines_and_versions_of_one_recording_are_compared(compare, recording, tolerances):
    limits = tolerances("ttft_s: {p50: 5%}")
    both_ways = recording(
        "run",
        served(1, engine="gpu-0", version="v1"),
        served(2, engine="gpu-1", version="v2", slower=1.4),
    )

    for by in (("engine", "gpu-0", "gpu-1"), ("version", "v1", "v2")):
        assert compare(both_ways, "--by", *by, "--tolerances", limits).code == 1
        assert compare(both_ways, "--by", by[0], *by[:0:-1], "--tolerances", limits).code == 0


def test_a_deployment_gives_batches_without_one_their_version(compare, recording, tolerances):
    deploys = [
        encode_json(
            ChangeEvent(source=Source(model=MODEL), time_s=START_S, kind="deploy", version=version)
        )
        for version in ("v1", "v2")
    ]
    run_of_both = recording(
        "run",
        deploys[:1],
        served(1),
        deploys[1:],
        served(2, slower=1.4, start_s=START_S + 400.0),
    )
    limits = tolerances("ttft_s: {p50: 5%}")

    done = compare(run_of_both, "--by", "version", "v1", "v2", "--tolerances", limits)

    assert done.code == 1


def test_times_of_one_recording_are_compared(compare, recording):
    run_of_both = recording("run", served(1), served(2, slower=1.4, start_s=START_S + 300.0))

    relative = compare(run_of_both, "--by", "time", "/+5m", "+5m/+10m", "--json")
    absolute = compare(
        run_of_both, "--by", "time", f"{START_S}/{START_S + 300}", f"{START_S + 300}/", "--json"
    )

    assert relative.found["signals"] == absolute.found["signals"]
    assert relative.found["signals"][0]["a"]["samples"] == 2_400
    assert relative.statistic("p50")["raw"]["low"] > 0.0


def test_a_model_under_another_name_is_compared_with_the_one_there_is(compare, recording):
    a, b = recording("a", served(1)), recording("b", served(2, model="llama-3-8b-int8"))

    assert compare(a, b, "--json").found["signals"][0]["model"] == f"{MODEL} -> llama-3-8b-int8"


def test_any_numeric_column_can_have_a_tolerance(compare, recording, tolerances):
    def accuracy(mean):
        return {"accuracy": lambda rng, n: rng.normal(mean, 2.0, n)}

    good = recording("good", served(1, columns=accuracy(80.0)))
    worse = recording("worse", served(2, columns=accuracy(79.0)))
    either_way = tolerances("accuracy: {mean: 0.3}")
    codes = [
        compare(*pair, "--tolerances", either_way).code for pair in ((good, worse), (worse, good))
    ]
    lower = tolerances("requests.accuracy: {mean: -0.3}")
    codes += [compare(*pair, "--tolerances", lower).code for pair in ((good, worse), (worse, good))]

    assert codes == [1, 1, 1, 0]


def test_a_batch_that_was_sent_twice_counts_once(compare, recording):
    once = list(served(1, boot="x", minutes=1))
    lines = [line.replace(b'"boot":"x"', b'"boot":"x","seq":%d' % i) for i, line in enumerate(once)]

    done = compare(recording("a", lines), recording("b", lines, lines[-3:]), "--json")

    assert done.found["signals"][0]["b"] == done.found["signals"][0]["a"]
    assert done.statistic("mean")["raw"]["difference"] == 0.0


def odd(draw):
    return {"columns": {"ttft_s": draw}}


@pytest.mark.parametrize(
    "draw",
    [
        lambda _, n: np.full(n, 0.02),
        lambda _, n: np.zeros(n),
        lambda _, n: np.full(n, np.nan),
        lambda rng, n: 1e-9 * rng.lognormal(0.0, 1.0, n),
        lambda rng, n: 1e9 * rng.lognormal(0.0, 1.0, n),
        lambda rng, n: rng.choice([1e-9, 1e9], n),
        lambda rng, n: rng.pareto(0.5, n),
    ],
    ids=["constant", "zero", "not measured", "tiny", "huge", "tiny or huge", "no mean"],
)
def test_odd_values_are_compared_without_a_failure_and_without_nan(
    compare, recording, tolerances, draw
):
    a, b = recording("a", served(1, **odd(draw))), recording("b", served(2))
    limits = tolerances("ttft_s: {mean: 5%, p99: 1ms}")

    for pair in ((a, b), (b, a), (a, recording("c", served(3, **odd(draw))))):
        for options in ((), ("--json",)):
            done = compare(*pair, "--tolerances", limits, *options)

            assert done.code in {0, 1, 3}
            assert "nan" not in done.out.lower()
            assert "inf" not in done.out.lower().replace("insufficient", "")


def test_two_samples_are_insufficient_and_it_says_what_is_needed(compare, recording, tolerances):
    few = served(1, minutes=1 / 12, columns={"ttft_s": lambda *_: np.r_[0.1, [np.nan] * 39]})
    a, b = recording("a", few), recording("b", served(2))

    for options in ((), ("--tolerances", tolerances("ttft_s: {p95: 5ms}"))):
        done = compare(a, b, *options)

        assert done.code == 3
        assert "insufficient: 1 samples in 1 different seconds on side A" in done.out


def test_a_signal_that_one_side_lacks_is_undecided(compare, recording, tolerances):
    lacking = recording("b", served(2, columns={"other": lambda rng, n: rng.random(n)}))
    done = compare(
        recording("a", served(1)), lacking, "--tolerances", tolerances("accuracy: {mean: 1}")
    )

    assert done.code == 3
    assert "insufficient: no samples in A and B" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "engine", "gpu-0", "gpu-7"], "has no engine 'gpu-7'; it has gpu-0"),
        (["--by", "version", "v1", "v2"], "has no version 'v2'; it has v1"),
        (["--by", "engine", "gpu-0", "gpu-0"], "A and B are the same"),
        (["--by", "engine", "gpu-0", "gpu-1", "--engine", "gpu-0"], "contradict"),
        (["--by", "time", "5m", "+1m/+2m"], "FROM/TO is needed"),
        (["--by", "time", "+2m/+1m", "+1m/+2m"], "ends before it begins"),
        (["--by", "day", "1", "2"], "'day' is not one of"),
        (["--model", "gpt-2", "--by", "engine", "gpu-0", "gpu-1"], "has no model 'gpt-2'"),
        ([], "got one source; give B, or --by"),
        (["--confidence", "95", "--by", "engine", "gpu-0", "gpu-1"], "confidence"),
    ],
)
def test_a_wrong_question_exits_with_2_and_one_message(compare, recording, options, message):
    done = compare(recording("a", served(1, minutes=0.2, version="v1")), *options)

    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_against_itself_and_a_third_source_are_wrong(compare, recording):
    a = recording("a", served(1, minutes=0.2))

    assert "A and B are the same" in compare(a, a).err
    assert "two at most" in compare(a, a, a).err
    assert compare(a, "none.jsonl").code == 2


def test_sides_without_a_model_in_common_say_which_there_are(compare, recording):
    two = recording("a", served(1, minutes=0.2), served(1, minutes=0.2, model="m2"))
    done = compare(two, recording("b", served(1, minutes=0.2, model="m3")))

    assert done.code == 2
    assert f"A has {MODEL}, m2, B has m3" in " ".join(done.err.split())


def test_a_time_without_samples_is_insufficient(compare, recording):
    done = compare(recording("a", served(1, minutes=0.2)), "--by", "time", "/+1m", "+1h/")

    assert done.code == 3
    assert "insufficient: no samples in B (time +1h/)" in done.err


def test_lines_that_cannot_be_used_are_counted(compare, recording):
    done = compare(recording("a", served(1, minutes=1), [b"{"]), recording("b", served(2)))

    assert done.code == 0
    assert "could not be used: 1 x not_decodable" in done.err


def test_a_real_engine_under_overload_is_far_slower_than_before(compare):
    done = compare(LIGHT, OVERLOAD, "--json")

    p99 = done.statistic("p99")["raw"]
    assert done.code == 0
    assert p99["a"] < 1.0
    assert p99["b"] > 20.0
    assert all(
        math.isfinite(s["raw"]["difference"]) for s in done.found["signals"][0]["statistics"]
    )


# The documentation


def test_the_documentation_shows_what_its_command_prints(compare, tolerances, golden, monkeypatch):
    """Its numbers are nobody's: ``--update-golden`` writes them."""
    monkeypatch.chdir(REPOSITORY)
    text = PAGE.read_text("utf-8")
    limits = tolerances(re.search(r"```yaml\n(.*?)```", text, re.DOTALL).group(1))
    command = re.search(r"^daom compare (tests/data.*)$", text, re.MULTILINE).group(1)

    done = compare(*command.replace("tolerances.yaml", str(limits)).split())

    lines = "\n".join(line.rstrip() for line in done.out.splitlines())
    shown = f"{BEGIN}\n\n```\n{lines}\n```\n\n{END}"
    page = re.sub(f"{BEGIN}.*{END}", lambda _: shown, text, flags=re.DOTALL)
    if golden.update:
        PAGE.write_text(page, "utf-8")
    assert done.code == 1
    assert PAGE.read_text("utf-8") == page


def test_the_examples_of_tolerances_are_ones(tolerances):
    for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        assert read_tolerances(tolerances(text))
