"""Messages as producers write them, good ones and ones with something changed."""

import json

import msgspec
import numpy as np
import pytest

from daom.codec import decode
from daom.errors import MalformedRecord
from tests.daom.stories import T0

GOOD = {
    "schema": "TelemetryBatch/1",
    "source": {"model": "m", "engine": "e", "boot": "7f3c", "seq": 4711, "tenant": None},
    "start_s": T0,
    "end_s": T0 + 0.5,
    "requests": {
        "end_s": [T0 + 0.1, T0 + 0.2],
        "ttft_s": [0.068, None],
        "prompt_tokens": [812, 90],
        "finish_reason": ["stop", None],
    },
    "gauges": {"kv_usage": 0.41, "running": 24},
}
TICK = {"schema": "Tick/1", "source": {"model": "m"}, "time_s": T0}
CHANGE = {"schema": "ChangeEvent/1", "source": {"model": "m"}, "kind": "deploy", "time_s": T0}
GPUS = {"schema": "GpuSample/1", "source": {"model": "m"}, "time_s": T0, "gpus": [{"index": 0}]}
MISSING = object()


def written(fields):
    """The bytes of ``fields`` as JSON, NaN and all."""
    return json.dumps(fields).encode()


def changed(fields, path, value):
    """A copy of ``fields`` in which the field at ``path`` is ``value``, or missing."""
    copy = json.loads(json.dumps(fields))
    *parents, last = path.split(".")
    place = copy
    for parent in parents:
        place = place[parent]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return copy


def refusal(value, **how):
    """Why ``value`` cannot be used."""
    with pytest.raises(MalformedRecord) as caught:
        decode(value, **how)
    return caught.value


def buffer(*values, dtype="<f4"):
    return np.array(values, dtype).tobytes()


def message(**requests):
    """A MessagePack batch at T0 with these columns of requests."""
    batch = {"schema": "TelemetryBatch/1", "source": {"model": "m"}, "end_s": T0}
    return msgspec.msgpack.encode(batch | {"requests": requests})
