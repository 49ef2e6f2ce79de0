"""Fragmentation is told only where PyTorch runs CUDA in this very process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from connectors.fragmentation import fragmentation_by_uuid, fragmentation_ratio, ratios_of

GIB = 2**30


def segment(device, **sizes):
    """A segment of the caching allocator, its blocks named by their state and a number."""
    blocks = [{"state": state.rstrip("0123456789"), "size": size} for state, size in sizes.items()]
    return {"device": device, "blocks": blocks}


@pytest.mark.parametrize(
    ("largest", "total", "ratio"),
    [(8 * GIB, 8 * GIB, 0.0), (2 * GIB, 8 * GIB, 0.75), (0, 8 * GIB, 1.0), (0, 0, None)],
)
def test_the_ratio_is_what_one_allocation_cannot_have(largest, total, ratio):
    assert fragmentation_ratio(largest, total) == ratio


def test_blocks_in_use_count_for_nothing():
    segments = [
        segment(0, inactive1=GIB, active_allocated=40 * GIB, inactive2=2 * GIB),
        segment(0, inactive=GIB),
        segment(1, active_allocated=GIB),
    ]

    assert ratios_of(segments) == {0: 0.5}


def test_pytorch_is_not_imported_to_ask_it():
    script = (
        "import sys; from connectors.fragmentation import fragmentation_by_uuid as ask; "
        "assert ask() == {}; assert 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def torch(*, initialised=True, snapshot=lambda: [segment(0, inactive1=GIB, inactive2=3 * GIB)]):
    """What is used of PyTorch, which needs a GPU to do any of it."""
    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        memory_snapshot=snapshot,
        get_device_properties=lambda device: SimpleNamespace(uuid=f"{device}-aaaa"),
    )
    return SimpleNamespace(cuda=cuda)


def breaks():
    raise RuntimeError("CUDA error")


@pytest.mark.parametrize(
    ("module", "ratios"),
    [
        (torch(), {"GPU-0-aaaa": 0.25}),
        (torch(initialised=False), {}),
        (torch(snapshot=breaks), {}),
        (SimpleNamespace(), {}),
    ],
    ids=["running", "not initialised", "broken", "half imported"],
)
def test_a_pytorch_that_is_there_is_asked_by_uuid(monkeypatch, module, ratios):
    monkeypatch.setitem(sys.modules, "torch", module)

    assert fragmentation_by_uuid() == ratios
