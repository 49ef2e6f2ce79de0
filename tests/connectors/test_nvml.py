"""What NVML says of GPUs becomes numbers with units; what it cannot say is left out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from connectors.gpu_engines import Host
from connectors.nvml import GpuReading
from daom.codec import decode, encode_msgpack
from daom.gpu_readings import readings
from tests.connectors.nvidia import GPU, OTHER, REPOSITORY, Machine

THERMAL = 0x20
LOST = {**GPU, "lost": 1}
ZEROS = {
    # What NVML reads 0 for, and what is not said then
    "sm_clock": "sm_clock_mhz",
    "mem_clock": "mem_clock_mhz",
    "temperature": "temperature_c",
    "power": "power_w",
    "power_limit": "power_limit_w",
    "total": "memory_total_bytes",
}


def of(**changed: object) -> dict[str, object]:
    return {**GPU, **changed}


def without(*names: str) -> dict[str, object]:
    return {name: value for name, value in GPU.items() if name not in names}


def through_kafka(*gpus: dict[str, Any]) -> list[dict[str, float | str]]:
    """What the worker gets of readings; none of it may be at fault."""
    values = [GpuReading({n: v for n, v in gpu.items() if n != "pids"}) for gpu in gpus]
    [(_, sample)] = Host("host-3", "m", "e").samples(values, 1_766_000_000.0)
    decoded = decode(encode_msgpack(sample))
    assert decoded.faults == ()
    return [dict(gpu) for gpu in decoded.record.gpus]


def test_a_gpu_says_what_it_has_and_does(machine: Machine) -> None:
    [gpu] = machine.has(GPU).read()

    assert gpu == {
        "uuid": "GPU-00000000-aaaa",
        "name": "NVIDIA H200",
        "index": "0",
        "lost": 0,
        "sm_clock_mhz": 1_980,
        "mem_clock_mhz": 3_201,
        "power_w": 645.5,
        "power_limit_w": 700.0,
        "temperature_c": 61,
        "clocks_event_reasons": 0,
        "ecc_corrected_total": 4,
        "ecc_uncorrected_total": 0,
        "pcie_replays_total": 2,
        "memory_total_bytes": 150_000_000_000,
        "memory_used_bytes": 90_000_000_000,
        "memory_free_bytes": 59_000_000_000,
        "memory_reserved_bytes": 1_000_000_000,
        "utilisation": 0.87,
        "memory_utilisation": 0.41,
        "xid": 0,
        "xid_total": 0,
        "processes": 2,
        "process_memory_max_bytes": 88_000_000_000,
        "pids": [4242, 4243],
    }


def test_a_reading_reaches_the_worker_without_a_fault(machine: Machine) -> None:
    [gpu] = machine.has(GPU).read()

    [got] = through_kafka(gpu)

    assert got == {name: value for name, value in gpu.items() if name != "pids"}


def test_heat_that_slows_a_gpu_is_understood(machine: Machine) -> None:
    machine.has(of(reasons=THERMAL, sm_clock=1_155, temperature=88), OTHER)

    understood = readings(through_kafka(*machine.read()))

    assert understood["throttle_thermal"] == 1.0
    assert understood["sm_clock_mhz"] == 1_155.0
    assert understood["temperature_c"] == 88.0


def test_power_at_its_limit_is_no_heat(machine: Machine) -> None:
    [gpu] = machine.has(of(reasons=0x4)).read()

    assert readings([gpu | {"pids": ""}])["throttle_thermal"] == 0.0


def test_what_a_gpu_does_not_support_is_absent(machine: Machine) -> None:
    [gpu] = machine.has({"uuid": "GPU-a", "temperature": 40}).read()

    assert gpu == {"uuid": "GPU-a", "index": "0", "lost": 0, "temperature_c": 40, "pids": []}


def test_an_error_of_one_field_costs_only_that_field(machine: Machine) -> None:
    [gpu] = machine.has(of(power="!999", processes="!4", reserved="!13")).read()

    assert gpu.keys().isdisjoint({"power_w", "processes", "memory_reserved_bytes"})
    assert gpu["memory_total_bytes"] == 150_000_000_000
    assert gpu["sm_clock_mhz"] == 1_980


@pytest.mark.parametrize(("read", "name"), ZEROS.items(), ids=ZEROS)
def test_an_impossible_zero_is_absent(machine: Machine, read: str, name: str) -> None:
    [gpu] = machine.has(of(**{read: 0})).read()

    assert name not in gpu
    assert gpu["memory_utilisation"] == 0.41


def test_a_gpu_that_reads_zero_everywhere_has_measured_nothing(machine: Machine) -> None:
    zeros = {name: 0 for name, value in GPU.items() if isinstance(value, int)}

    [gpu] = machine.has({**GPU, **zeros}).read()

    assert gpu.keys() == {
        *("uuid", "name", "index", "lost", "xid", "xid_total", "pids"),
        *("processes", "process_memory_max_bytes"),
    }
    assert "sm_clock_mhz" not in readings(through_kafka(gpu))


def test_a_number_that_means_not_available_is_absent(machine: Machine) -> None:
    [gpu] = machine.has(of(replays=2**32 - 1, ecc_corrected=2**64 - 1)).read()

    assert gpu.keys().isdisjoint({"pcie_replays_total", "ecc_corrected_total"})


def test_the_newest_xid_stays_and_all_are_counted(machine: Machine) -> None:
    with machine.has(GPU).reader() as reader:
        [calm] = reader.read()
        machine.has(of(xids="31,79"))
        [after], [later] = reader.read(), reader.read()

    assert (calm["xid"], calm["xid_total"]) == (0, 0)
    assert (after["xid"], after["xid_total"]) == (79, 2)
    assert (later["xid"], later["xid_total"]) == (79, 2)


def test_a_lost_gpu_stops_nobody_else_and_says_its_last_xid(machine: Machine) -> None:
    with machine.has(GPU, OTHER).reader() as reader:
        reader.read()
        machine.has({**LOST, "xids": "79"}, OTHER)
        lost, other = reader.read()

    identity = {"uuid": GPU["uuid"], "name": "NVIDIA H200", "index": "0"}
    reason = {"lost": 1, "xid": 79, "xid_total": 1}
    assert lost == {**identity, **reason, "pids": [4242, 4243]}
    assert (other["lost"], other["sm_clock_mhz"]) == (0, 1_980)


def test_a_gpu_that_was_lost_at_the_start_is_read_once_it_is_back(machine: Machine) -> None:
    with machine.has(LOST, OTHER).reader() as reader:
        lost, other = reader.read()
        machine.has(GPU, OTHER)
        back, _ = reader.read()

    assert lost == {"index": "0", "lost": 1, "pids": []}
    assert other["lost"] == 0
    assert (back["uuid"], back["lost"]) == (GPU["uuid"], 0)


def test_a_chosen_gpu_that_is_lost_at_the_start_is_reported_as_lost(machine: Machine) -> None:
    machine.has(LOST, OTHER)

    found = machine.read(f"{GPU['uuid']},{OTHER['uuid']}")

    assert [(gpu["uuid"], gpu["lost"]) for gpu in found] == [
        (OTHER["uuid"], 0),
        (GPU["uuid"], 1),
    ]


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"field.38": 3, "field.52": 4, "field.161.5": 100}, 7),
        ({"field.161": 1, "field.162.5": 2, "field.163.17": 4}, 7),
        ({}, None),
    ],
    ids=["totals", "link by link", "none"],
)
def test_nvlink_errors_of_all_links_are_one_counter(
    machine: Machine, fields: dict[str, int], errors: int | None
) -> None:
    [gpu] = machine.has(of(**fields)).read()

    assert gpu.get("nvlink_errors_total") == errors


def test_without_the_second_version_of_the_memory_the_first_is_asked(machine: Machine) -> None:
    [gpu] = machine.has(without("reserved")).read()

    assert gpu["memory_used_bytes"] == 90_000_000_000
    assert "memory_reserved_bytes" not in gpu


def test_vgpus_are_counted_with_their_memory(machine: Machine) -> None:
    [gpu] = machine.has(of(vgpus="3,5")).read()

    assert (gpu["vgpus"], gpu["vgpu_memory_used_bytes"]) == (2, 8 * 2**30)


# MIG

MIG = of(
    **{"migs": 2, "mig0.uuid": "MIG-c", "mig0.total": 20_000, "mig0.used": 5_000},
    **{"mig1.uuid": "MIG-d", "mig1.total": 40_000, "mig1.processes": "77:900"},
)


def test_mig_devices_stand_beside_their_gpu(machine: Machine) -> None:
    gpu, small, large = machine.has(MIG).read()

    assert gpu["temperature_c"] == 61
    assert (small["uuid"], small["parent_uuid"], small["index"]) == ("MIG-c", GPU["uuid"], "0:0")
    assert (small["memory_total_bytes"], small["memory_used_bytes"]) == (20_000, 5_000)
    assert (large["memory_total_bytes"], large["pids"]) == (40_000, [77])


@pytest.mark.parametrize(
    ("choice", "uuids"),
    [
        ("0", [OTHER["uuid"]]),
        (str(OTHER["uuid"]), [OTHER["uuid"]]),
        ("GPU-0", [GPU["uuid"], "MIG-c", "MIG-d"]),
        ("MIG-d", [GPU["uuid"], "MIG-d"]),
        ("1,0", [OTHER["uuid"], GPU["uuid"], "MIG-c", "MIG-d"]),
        ("0,-1,1", [OTHER["uuid"]]),
        ("all", [OTHER["uuid"], GPU["uuid"], "MIG-c", "MIG-d"]),
    ],
)
def test_gpus_are_chosen_as_for_cuda(machine: Machine, choice: str, uuids: list[str]) -> None:
    assert [gpu["uuid"] for gpu in machine.has(OTHER, MIG).read(choice)] == uuids


# Without NVML


def test_without_pynvml_the_module_is_there_and_says_what_is_missing() -> None:
    script = """
import sys
sys.modules["pynvml"] = None
from connectors.nvml import Gpus
from daom.errors import MissingExtra
try:
    Gpus()
except MissingExtra as error:
    print(error)
"""

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )

    assert "pip install 'daom[gpu]'" in done.stdout
