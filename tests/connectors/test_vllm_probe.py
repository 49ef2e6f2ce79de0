"""The probe in an engine's process: what it reports of it, and that it cannot hurt it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from connectors import vllm_probe
from connectors.probe_settings import read_probe_settings
from connectors.vllm_config import describe_config
from connectors.vllm_gpus import EngineGpus, chosen
from connectors.vllm_probe import Probe, make_probe, run_id, served_name
from daom.codec import decode, encode_msgpack
from daom.events import ChangeEvent, TelemetryBatch
from tests.connectors.vllm_recorded import finished, recorded, scheduler, step

NOWHERE = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "DAOM_PROBE__ENGINE": "blue"}


def configured(*, frontends=1, rank=0, data_parallel=1, **more):
    """A vLLM configuration; what is not given is not there."""
    parallel = SimpleNamespace(
        data_parallel_size=data_parallel, _api_process_count=frontends, _api_process_rank=rank
    )
    model = SimpleNamespace(served_model_name=["tiny", "alias"], model="/models/tiny")
    return SimpleNamespace(parallel_config=parallel, model_config=model, **more)


def probe_of(config=None, engines=(0,), **variables):
    return Probe(
        read_probe_settings(NOWHERE | variables), config or configured(), list(engines), "0.32.0"
    )


def batches(probe):
    return [r for _, r in probe.collect() if isinstance(r, TelemetryBatch)]


@pytest.fixture
def clock(monkeypatch):
    """The time, as the probe sees it."""
    now = SimpleNamespace(time_s=1_766_000_000.0, monotonic_s=1_000.0)
    monkeypatch.setattr(
        vllm_probe,
        "time",
        SimpleNamespace(
            time=lambda: now.time_s, monotonic=lambda: now.monotonic_s, sleep=lambda _: None
        ),
    )
    return now


def later(clock, by_s):
    clock.time_s += by_s
    clock.monotonic_s += by_s


# What is reported


def test_what_was_recorded_is_in_the_next_batch_of_its_engine(clock):
    probe = probe_of(configured(data_parallel=2), engines=(0, 1))
    probe.record(1, scheduler(running=4), step(clock.time_s, gaps_s=[0.02] * 4))
    probe.record(1, scheduler(running=3), step(clock.time_s, finished=[finished(2.0)]))

    one, other = batches(probe)

    assert (one.source.engine, one.steps.rows) == ("blue/0", 0)
    assert (other.source.engine, other.steps.rows, other.requests.rows) == ("blue/1", 2, 1)
    assert decode(encode_msgpack(other)).faults == ()


def test_batches_are_numbered_and_follow_one_another_without_a_gap(clock):
    probe = probe_of()
    found = []
    for _ in range(3):
        probe.record(0, scheduler(), step(clock.time_s))
        found += batches(probe)
        later(clock, 0.25)

    assert [batch.source.seq for batch in found] == [1, 2, 3]
    assert [b.start_s for b in found[1:]] == [b.end_s for b in found[:-1]]


def test_a_longer_period_makes_fewer_batches_and_loses_no_step(clock):
    probe = probe_of(DAOM_PROBE__PERIOD_S="5")
    sent = []
    for _ in range(60):
        for _ in range(600):
            probe.record(0, None, step(clock.time_s, gaps_s=[0.0004]))
        later(clock, 0.25)
        sent += batches(probe)
    later(clock, 5.0)
    sent += batches(probe)

    assert sum(batch.steps.rows for batch in sent) == 36_000
    assert sent[-1].gauges["probe_lost_steps_total"] == 0.0
    # Not one at each of the 61 looks, but as soon as there are so many rows.
    assert len(sent) == pytest.approx(36_000 / 1_024, abs=5.0)


def test_many_rows_go_out_before_their_time_and_none_is_told_twice(clock):
    probe = probe_of()
    for number in range(2_500):
        probe.record(0, scheduler(), step(clock.time_s, tokens=number))

    found = batches(probe)

    assert [batch.steps.rows for batch in found] == [1_024, 1_024, 452]
    assert [batch.source.seq for batch in found] == [1, 2, 3]
    assert sum(float(b.steps.columns["tokens"].sum()) for b in found) == sum(range(2_500))


def test_the_stop_sends_what_is_not_due_yet(clock):
    probe = probe_of(DAOM_PROBE__PERIOD_S="10")
    batches(probe)
    probe.record(0, scheduler(), step(clock.time_s, gaps_s=[0.02]))
    early = batches(probe)

    probe.stop()

    assert early == []
    assert [batch.steps.rows for batch in batches(probe)] == [1]


def test_an_idle_engine_goes_on_sending_its_gauges_every_two_seconds(clock):
    probe = probe_of()
    probe.record(0, scheduler(running=0, waiting=0), None)
    sent = []
    for _ in range(40):
        sent += batches(probe)
        later(clock, 0.25)

    assert len(sent) == 5
    assert {batch.gauges["running"] for batch in sent} == {0.0}


def test_the_first_record_is_what_was_configured(clock):
    cache = SimpleNamespace(num_gpu_blocks=8_192, enable_prefix_caching=True)
    probe = probe_of(configured(cache_config=cache))
    probe.note_change(0, "restart", describe_config(configured(cache_config=cache), "0.32.0"))

    key, change = next(probe.collect())

    assert (key, change.kind, change.version) == ("tiny", "restart", "0.32.0")
    assert "kv_blocks=8192 prefix_caching=True" in change.detail


FACTS = {
    "model_config": {"model": "org/tiny", "dtype": "torch.bfloat16", "max_model_len": 2_048},
    "parallel_config": {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 4,
        "enable_expert_parallel": False,
        "decode_context_parallel_size": 2,
    },
    "attention_config": {"backend": SimpleNamespace(name="FLASHINFER")},
    "cache_config": {"num_gpu_blocks": 8_192, "block_size": 16, "enable_prefix_caching": True},
    "scheduler_config": {"max_num_seqs": 256, "max_num_batched_tokens": 8_192},
    "compilation_config": {"cudagraph_mode": SimpleNamespace(name="PIECEWISE")},
}


def test_what_was_configured_names_what_can_make_an_engine_slower():
    config = SimpleNamespace(**{name: SimpleNamespace(**of) for name, of in FACTS.items()})

    assert describe_config(config, "0.32.0") == (
        "vLLM 0.32.0 model=org/tiny dtype=bfloat16 max_model_len=2048 tensor_parallel=2 "
        "pipeline_parallel=1 data_parallel=4 expert_parallel=False decode_context_parallel=2 "
        "attention=FLASHINFER kv_blocks=8192 block_size=16 prefix_caching=True max_num_seqs=256 "
        "max_num_batched_tokens=8192 cudagraph=PIECEWISE"
    )


def test_an_older_version_has_its_attention_backend_from_the_environment(clock):
    probe = probe_of(VLLM_ATTENTION_BACKEND="FLASH_ATTN")

    assert "attention=FLASH_ATTN" in probe._configured


def test_sleep_and_wake_are_changes(clock):
    probe = probe_of()
    probe.note_sleep(True, 1)
    probe.note_sleep(False, 0)

    changes = [r.detail for _, r in probe.collect() if isinstance(r, ChangeEvent)]

    assert changes == ["sleep level 1", "wake"]


def test_of_several_frontends_the_first_reports_changes_and_each_its_own_batches(clock):
    probes = [probe_of(configured(frontends=2, rank=rank)) for rank in (0, 1)]
    for probe in probes:
        probe.note_change(0, "restart", "x")

    records = [[r for _, r in probe.collect()] for probe in probes]

    assert [[type(r).__name__ for r in of] for of in records] == [
        ["ChangeEvent", "TelemetryBatch"],
        ["TelemetryBatch"],
    ]
    sources = [of[-1].source for of in records]
    assert sources[0].boot == sources[1].boot
    assert [source.frontend for source in sources] == ["0", "1"]


def test_two_frontends_of_two_engines_report_each_token_once(clock):
    calls = recorded("two_engines")
    pids = sorted({call.pid for call in calls})
    probes = {
        pid: probe_of(configured(frontends=2, rank=rank, data_parallel=2), engines=(0, 1))
        for rank, pid in enumerate(pids)
    }
    for call in calls:
        probes[call.pid].record(call.engine, call.scheduler, call.iteration)
    clock.time_s = calls[-1].wall_s
    found = [batch for probe in probes.values() for batch in batches(probe)]

    assert {b.source.engine for b in found} == {"blue/0", "blue/1"}
    assert sum(float(b.steps.columns["tokens"].sum()) for b in found) == 4_000
    assert sum(b.requests.rows for b in found) == 40


def test_a_large_model_is_cut_into_cells_by_the_engines_name(clock):
    probes = [probe_of(DAOM_PROBE__CELLS="4", DAOM_PROBE__ENGINE=f"e{n}") for n in range(40)]

    keys = [key for probe in probes for key, _ in probe.collect()]

    assert set(keys) == {"tiny/0", "tiny/1", "tiny/2", "tiny/3"}
    assert keys == [key for probe in probes for key, _ in _again(probe, clock)]


def _again(probe, clock):
    later(clock, 1.0)
    probe.record(0, scheduler(), None)
    return list(probe.collect())


def test_rejected_requests_are_counted_by_reason(clock):
    probe = probe_of()
    probe.note_rejection("queue_full")
    probe.note_rejection("queue_full")

    (batch,) = batches(probe)

    assert batch.gauges["rejected_queue_full_total"] == 2.0


# GPUs


@pytest.mark.parametrize(
    ("visible", "an_engine", "engine", "expected"),
    [
        (None, 2, 0, "0,1"),
        (None, 2, 1, "2,3"),
        ("4,5,6,7", 2, 1, "6,7"),
        ("GPU-a", 1, 0, "GPU-a"),
        ("4", 1, 3, "4"),
    ],
)
def test_each_engine_has_the_next_gpus_of_those_that_are_visible(
    visible, an_engine, engine, expected
):
    assert chosen(visible, an_engine, engine) == expected


def test_without_a_driver_no_gpu_is_read_and_it_is_said_once(clock, caplog):
    gpus = EngineGpus(None, 1, [0])

    with caplog.at_level("INFO", "vllm.daom"):
        assert [gpus.read(clock.time_s + by_s) for by_s in (0.0, 2.0, 4.0)] == [{}, {}, {}]

    assert [record.message.partition(":")[2][:16] for record in caplog.records] == [
        " no GPU is read:"
    ]


# What must not hurt


def test_steps_that_the_thread_did_not_get_to_are_lost_and_counted(clock):
    probe = probe_of()
    for _ in range(20_000):
        probe.record(0, scheduler(), None)

    (batch,) = batches(probe)

    assert batch.gauges["probe_lost_steps_total"] == 20_000 - 16_384


def test_a_clock_that_is_put_back_spoils_nothing_and_is_counted(clock):
    probe = probe_of()
    batches(probe)
    clock.time_s -= 3_600.0
    probe.record(0, scheduler(), step(clock.time_s, gaps_s=[0.02]))

    (batch,) = batches(probe)

    assert batch.start_s <= batch.end_s
    assert batch.gauges["clock_jumps_total"] == 1.0
    assert decode(encode_msgpack(batch)).faults == ()


def test_a_clock_that_is_put_forward_costs_no_more_than_what_it_had_not_sent_yet(clock):
    probe = probe_of()
    batches(probe)
    clock.time_s += 86_400.0
    probe.record(0, scheduler(), step(clock.time_s, gaps_s=[0.02]))

    (batch,) = batches(probe)

    assert batch.steps.rows == 1
    assert batch.gauges["clock_jumps_total"] == 1.0
    assert decode(encode_msgpack(batch)).faults == ()


def test_a_step_that_cannot_be_read_is_counted_and_the_others_are_reported(clock, caplog):
    probe = probe_of()
    for ttfts_s in ([0.5], ["soon"], [None], [0.7]):
        probe.record(0, scheduler(), step(clock.time_s, ttfts_s=ttfts_s))

    (batch,) = batches(probe)

    assert batch.gauges["first_tokens_total"] == 2.0
    assert batch.gauges["probe_errors_total"] == 2.0
    assert len(caplog.records) == 1


def test_statistics_of_an_engine_that_nobody_announced_are_left_out(clock):
    probe = probe_of()
    probe.record(7, scheduler(), step(clock.time_s, gaps_s=[0.02]))

    (batch,) = batches(probe)

    assert batch.steps.rows == 0


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "nothing is reported: where Kafka is is not known"),
        (NOWHERE | {"DAOM_PROBE__PERIOD_S": "x"}, "DAOM_PROBE__PERIOD_S"),
        (NOWHERE | {"DAOM_PROBE__ENABLED": "false"}, "probe.enabled is false"),
        ({"DAOM_PROBE__ENABLED": "false"}, "probe.enabled is false"),
    ],
)
def test_a_probe_that_is_not_to_be_is_one_line(variables, words, caplog):
    with caplog.at_level("INFO", "vllm.daom"):
        assert make_probe(variables, configured(), [0], "0.32.0") is None

    (record,) = caplog.records
    assert words in record.message


def test_a_configuration_of_nothing_has_a_name_and_a_description():
    assert served_name(object()) == "unknown"
    assert describe_config(object(), "1") == "vLLM 1"


def test_a_run_is_named_by_its_process_and_the_time_it_began():
    assert run_id(1) == run_id(1)
    assert run_id(1).startswith("1-")


def test_a_full_disk_under_the_log_stops_nobody():
    """The plugin writes no file; what it says goes where vLLM's log goes."""
    code = (
        "import sys; from connectors.vllm_probe import make_probe; "
        "make_probe({}, None, [0], '1'); "
        "probe = make_probe({'DAOM_KAFKA__BOOTSTRAP_SERVERS': '127.0.0.1:1'}, None, [0], '1'); "
        "probe.record(0, None, None); probe._reporter.stop(0.1); sys.exit(7 if probe.names else 1)"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=full, check=False)

    assert done.returncode == 7


def test_the_plugin_needs_only_what_an_engine_has_anyway():
    """Beside aiokafka, which its thread imports."""
    code = (
        "import sys; import connectors.vllm_probe; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    heavy = {"scipy", "river", "pydantic", "numba", "faust", "mode", "aiokafka", "click", "yaml"}
    assert heavy.isdisjoint(done.stdout.split())
