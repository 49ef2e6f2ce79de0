"""What the plugin in an engine is told, and what it says of what it cannot use."""

import json

import pytest

from connectors.probe_settings import (
    OTHERS_KAFKA,
    Probe,
    probe_section,
    read_probe_settings,
)
from daom.config import load_config
from daom.connections import KafkaConfig
from daom.errors import ConfigError

SERVERS = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": "b1:9092, b2:9092"}
FILES = {
    "daom.yaml": "kafka: {bootstrap_servers: [b1:9092], topic_prefix: x}\nprobe: {engine: blue}\n",
    "daom.toml": '[kafka]\nbootstrap_servers = "b1:9092"\ntopic_prefix = "x"\n'
    '[probe]\nengine = "blue"',
    "daom.json": '{"kafka": {"bootstrap_servers": ["b1:9092"], "topic_prefix": "x"},'
    ' "probe": {"engine": "blue"}, "worker": {}}',
}


def test_a_variable_that_says_where_kafka_is_is_enough():
    settings = read_probe_settings(SERVERS)

    assert settings.client == {"bootstrap_servers": ["b1:9092", "b2:9092"]}
    assert settings.topic == "daom.telemetry"
    assert settings.probe == Probe()


@pytest.mark.parametrize("name", FILES)
def test_the_file_of_the_other_processes_serves_the_plugin_too(tmp_path, name):
    path = tmp_path / name
    path.write_text(FILES[name])

    settings = read_probe_settings({"DAOM_CONFIG": str(path)})

    assert settings.client == {"bootstrap_servers": ["b1:9092"]}
    assert (settings.topic, settings.probe.engine) == ("x.telemetry", "blue")


def test_the_other_processes_take_the_plugins_section(tmp_path):
    path = tmp_path / "daom.yaml"
    path.write_text(FILES["daom.yaml"])

    assert load_config(path, {"DAOM_PROBE__REGION": "eu"}).probe == {
        "engine": "blue",
        "region": "eu",
    }


def test_what_the_file_says_of_kafka_to_the_other_processes_is_no_mistake(tmp_path):
    defaults = KafkaConfig().model_dump(mode="json", exclude_none=True)
    path = tmp_path / "daom.json"
    path.write_text(json.dumps({"kafka": defaults}))

    assert defaults.keys() >= OTHERS_KAFKA
    assert read_probe_settings({"DAOM_CONFIG": str(path)}).topic == "daom.telemetry"


def test_variables_override_the_file_and_are_words_numbers_or_yes_and_no(tmp_path):
    path = tmp_path / "daom.json"
    path.write_text(FILES["daom.json"])
    variables = {
        "DAOM_CONFIG": str(path),
        "DAOM_PROBE__ENGINE": "7",
        "DAOM_PROBE__PERIOD_S": "0.5",
        "DAOM_PROBE__GPU": "false",
        "DAOM_PROBE__CELLS": "4",
        "DAOM_ALERTS__PENDING_S": "30",
    }

    probe = read_probe_settings(variables).probe

    assert (probe.engine, probe.period_s, probe.gpu, probe.cells) == ("7", 0.5, False, 4)


WRONG = {
    "nothing": ({}, ["where Kafka is is not known", "DAOM_KAFKA__BOOTSTRAP_SERVERS=HOST:PORT"]),
    "no server": (
        {"DAOM_KAFKA__BOOTSTRAP_SERVERS": " , "},
        ["DAOM_KAFKA__BOOTSTRAP_SERVERS", "' , '"],
    ),
    "a prefix that Kafka does not take": (
        SERVERS | {"DAOM_KAFKA__TOPIC_PREFIX": "a b"},
        ["DAOM_KAFKA__TOPIC_PREFIX", "'a b'", "A-Z a-z 0-9"],
    ),
    "a number that is none": (
        SERVERS | {"DAOM_PROBE__PERIOD_S": "often"},
        ["DAOM_PROBE__PERIOD_S", "period_s"],
    ),
    "a number that is too large": (
        SERVERS | {"DAOM_PROBE__PERIOD_S": "60"},
        ["DAOM_PROBE__PERIOD_S", "<= 10", "period_s"],
    ),
    "an unknown setting of Kafka": (
        SERVERS | {"DAOM_KAFKA__SECURITY_PROTOCL": "SSL"},
        ["DAOM_KAFKA__SECURITY_PROTOCL", "kafka.security_protocl is not known", "sasl_mechanism"],
    ),
    "an unknown field": (
        SERVERS | {"DAOM_PROBE__NAME": "x"},
        ["DAOM_PROBE__NAME: ", "`name`", "allowed", "engine"],
    ),
    "a missing file": (
        {"DAOM_CONFIG": "/nowhere/daom.yaml"},
        ["/nowhere/daom.yaml", "No such file"],
    ),
}


@pytest.mark.parametrize(("variables", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_one_clear_message(variables, words):
    with pytest.raises(ConfigError) as caught:
        read_probe_settings(variables)

    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("content", ["{", "[1", "kafka: 7", "3"])
@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_a_broken_file_is_one_clear_message(tmp_path, content, suffix):
    path = tmp_path / f"daom.{suffix}"
    path.write_text(content)

    with pytest.raises(ConfigError, match="daom"):
        read_probe_settings({"DAOM_CONFIG": str(path)})


def test_the_agents_read_from_it_into_how_many_cells_a_model_is_cut():
    given = load_config(None, {"DAOM_PROBE__CELLS": "4", "DAOM_PROBE__GPU": "false"}).probe

    assert (probe_section(given).cells, probe_section({}).cells) == (4, 1)
    with pytest.raises(ConfigError, match="cells"):
        probe_section({"cells": "some"})


# Names


def test_an_engine_that_is_named_keeps_its_name():
    settings = read_probe_settings(SERVERS | {"DAOM_PROBE__ENGINE": "blue"})

    assert settings.engine_name(0, 1) == "blue"
    assert [settings.engine_name(i, 2) for i in (0, 1)] == ["blue/0", "blue/1"]


def test_an_engine_without_a_name_is_called_by_its_host_and_gpus():
    variables = SERVERS | {"DAOM_PROBE__HOST": "node-3"}

    assert read_probe_settings(variables).engine_name(0, 1) == "node-3"
    variables |= {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert read_probe_settings(variables).engine_name(0, 1) == "node-3:4,5"
