"""The configuration: defaults, a file, the environment on top, and one message for all faults."""

import jsonschema
import pytest
import yaml

from daom.config import Config, config_schema, config_yaml, load_config
from daom.errors import ConfigError
from daom.presets import cell_settings


@pytest.fixture
def written(tmp_path):
    """Writes a configuration file; returns its path."""

    def write(text):
        path = tmp_path / "daom.yaml"
        path.write_text(text, "utf-8")
        return path

    return write


def complaint(path, environment=None):
    """What the operator is told."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment or {})
    return str(caught.value)


# What is right


def test_without_a_file_and_variables_the_defaults_hold():
    assert load_config(None, {}) == Config()


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800.0), ("1h30m", 5_400.0), ("90", 90.0), ("90.5s", 90.5)]
)
def test_a_duration_may_be_written_as_people_write_it(written, text, seconds):
    file = written(f"detector: {{false_alarm_interval_s: {text}}}\n")

    for config in (
        load_config(file, {}),
        load_config(None, {"DAOM_DETECTOR__FALSE_ALARM_INTERVAL_S": text}),
    ):
        assert config.detector.false_alarm_interval_s == seconds


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_an_empty_file_gives_the_defaults(written, text):
    assert load_config(written(text), {}) == Config()


def test_a_file_changes_what_it_names_and_nothing_else(written):
    config = load_config(written("alerts:\n  pending_s: 30\nkafka:\n  group: blue\n"), {})

    assert (config.alerts.pending_s, config.kafka.group) == (30.0, "blue")
    assert config.alerts.resolve_s == Config().alerts.resolve_s
    assert config.signals == Config().signals


def test_signals_are_those_of_the_file_in_its_order(written):
    config = load_config(written("signals: {semantic_score: {table: requests}, ttft_s: {}}"), {})

    assert list(config.signals) == ["semantic_score", "ttft_s"]


VARIABLES = [
    ("DAOM_ALERTS__PENDING_S", "30", ("alerts", "pending_s"), 30.0),
    ("DAOM_KAFKA__BOOTSTRAP_SERVERS", "b1:9092, b2:9092", ("kafka", "bootstrap_servers"), None),
    (
        "DAOM_KAFKA__BOOTSTRAP_SERVERS",
        '["b1:9092", "b2:9092"]',
        ("kafka", "bootstrap_servers"),
        None,
    ),
    ("DAOM_KAFKA__GROUP", "blue", ("kafka", "group"), "blue"),
    ("DAOM_PRESET", "adwin", ("preset",), "adwin"),
    ("DAOM_ALERTS", '{"pending_s": 5}', ("alerts", "pending_s"), 5.0),
    ("DAOM_WORKER__METRICS_PORT", "9100", ("worker", "metrics_port"), 9100),
]


@pytest.mark.parametrize(("variable", "text", "field", "expected"), VARIABLES)
def test_a_variable_overrides_its_field(variable, text, field, expected):
    value = load_config(None, {variable: text})
    for name in field:
        value = getattr(value, name)

    assert value == (("b1:9092", "b2:9092") if expected is None else expected)


def test_a_variable_wins_over_the_file_and_leaves_its_neighbours(written):
    path = written("alerts: {pending_s: 10, resolve_s: 20}")

    config = load_config(path, {"DAOM_ALERTS__PENDING_S": "30"})

    assert (config.alerts.pending_s, config.alerts.resolve_s) == (30.0, 20.0)


def test_a_variable_reaches_into_a_signal_of_the_file(written):
    path = written("signals: {ttft_s: {workload: prompt_tokens}}")

    config = load_config(path, {"DAOM_SIGNALS__TTFT_S__SLO_S": "2.5"})

    assert config.signals["ttft_s"].slo_s == 2.5
    assert config.signals["ttft_s"].workload == "prompt_tokens"


@pytest.mark.parametrize("text", [None, "alerts: {pending_s: 30}"], ids=["no file", "a file"])
def test_a_variable_reaches_into_a_default_signal_and_leaves_all_others(written, text):
    path = None if text is None else written(text)

    config = load_config(path, {"DAOM_SIGNALS__TTFT_S__SLO_S": "2.5"})

    expected = Config().model_dump()["signals"]
    expected["ttft_s"]["slo_s"] = 2.5
    assert config.model_dump()["signals"] == expected
    assert list(config.signals) == list(Config().signals)


def test_a_variable_adds_a_signal_to_those_of_the_defaults():
    config = load_config(None, {"DAOM_SIGNALS__SEMANTIC_SCORE__TABLE": "steps"})

    assert list(config.signals) == [*Config().signals, "semantic_score"]
    assert config.signals["semantic_score"].table == "steps"


def test_a_signal_of_a_file_keeps_nothing_of_the_defaults(written):
    path = written("signals: {itl_s: {table: steps}}")

    config = load_config(path, {"DAOM_SIGNALS__TTFT_S__SLO_S": "2.5"})

    assert list(config.signals) == ["itl_s", "ttft_s"]
    assert config.signals["itl_s"].workload is None


def test_a_group_may_be_a_number(written):
    assert load_config(written("kafka: {group: 7}"), {}).kafka.group == "7"
    assert load_config(None, {"DAOM_KAFKA__GROUP": "7"}).kafka.group == "7"


def test_commas_too_many_name_no_broker():
    servers = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": "b1:9092, ,b2:9092,"}

    assert load_config(None, servers).kafka.bootstrap_servers == ("b1:9092", "b2:9092")


@pytest.mark.parametrize(
    "variable",
    ["PATH", "DAOM_CONFIG", "DAOM_TEST_KAFKA", "DAOM_REQUIRE_SERVERS", "ALERTS__PENDING_S"],
)
def test_variables_of_others_are_left_alone(variable):
    assert load_config(None, {variable: "whatever"}) == Config()


def test_values_never_change_once_loaded():
    with pytest.raises(ValueError, match="frozen"):
        Config().alerts.pending_s = 1.0


# What is wrong: the file, the field, what was found, what is allowed.

BAD_FILES = {
    "unknown section": ("alertz: {}", "alertz", "unknown", "alerts, bridge, detector"),
    "unknown field": ("alerts: {pending: 1}", "alerts.pending", "unknown", "pending_s, resolve_s"),
    "unknown field of a signal": (
        "signals: {ttft_s: {colum: x}}",
        "signals.ttft_s.colum",
        "unknown",
        "column, slo_s, table, workload, workload_base",
    ),
    "words for a number": ("alerts: {pending_s: soon}", "alerts.pending_s", "'soon'", "number"),
    "a part of a partition": ("kafka: {partitions: 1.5}", "kafka.partitions", "1.5", "integer"),
    "a list for a section": ("alerts: [1]", "alerts", "[1]", "dictionary"),
    "below the range": ("alerts: {pending_s: -1}", "alerts.pending_s", "-1", "equal to 0"),
    "above the range": ("time: {pane_s: 4000}", "time.pane_s", "4000", "equal to 3600"),
    "not a number": ("alerts: {pending_s: .nan}", "alerts.pending_s", "nan", "equal to 0"),
    "no time at all": ("alerts: {silent_after_s: 0}", "alerts.silent_after_s", "0", "than 0"),
    "a share of all": ("alerts: {fleet_share: 1}", "alerts.fleet_share", "1", "less than 1"),
    "no signal": ("signals: {}", "signals", "{}", "at least 1"),
    "no broker": ("kafka: {bootstrap_servers: []}", "kafka.bootstrap_servers", "[]", "at least 1"),
    "a broker of no name": (
        "kafka: {bootstrap_servers: ''}",
        "kafka.bootstrap_servers",
        "''",
        "at least 1",
    ),
    "spaces in a topic": ("kafka: {topic_prefix: a b}", "kafka.topic_prefix", "'a b'", "pattern"),
    "unknown preset": ("preset: best", "preset", "'best'", "'default', 'sits2026'"),
    "unknown table": ("signals: {a: {table: rows}}", "signals.a.table", "'rows'", "'requests'"),
    "the document's preset without its SLO": (
        "preset: sits2026",
        "signals.ttft_s.slo_s",
        "preset=sits2026",
        "in seconds, such as 2.0",
    ),
    "strata that begin in between": (
        "signals: {a: {workload: w, workload_base: 100}}",
        "signals.a",
        "workload_base=100",
        "not a power of 2",
    ),
    "windows out of order": (
        "detector: {window_panes: 200}",
        "detector",
        "window_panes=200",
        "max_window_panes=180",
    ),
    "not YAML": ("a: b: c", "line 1, column 5", "mapping values", "not YAML"),
    "a list": ("- 1", "", "got a list", "a map of sections"),
    "words": ("hello", "", "got a str", "a map of sections"),
}


@pytest.mark.parametrize(("text", "field", "got", "allowed"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_gives_one_message_of_file_field_value_and_what_is_allowed(
    written, text, field, got, allowed
):
    path = written(text)

    message = complaint(path)

    assert message.startswith(f"{path}: ")
    assert all(words in message for words in (field, got, allowed)), message
    assert "\n" not in message


def test_a_file_with_many_mistakes_gives_one_message_with_a_line_for_each(written):
    message = complaint(written("time: {pane_s: 0}\nalerts: {pending_s: -1, when: 2}"))

    lines = message.splitlines()
    assert len(lines) == 3
    assert [f for f in ("time.pane_s", "alerts.pending_s", "alerts.when") if f in message] == [
        "time.pane_s",
        "alerts.pending_s",
        "alerts.when",
    ]


def test_a_file_that_is_not_there_is_named(tmp_path):
    message = complaint(tmp_path / "none.yaml")

    assert message == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory"


BAD_VARIABLES = [
    ("DAOM_ALERTS__PENDING_S", "soon", "alerts.pending_s", "'soon'", "number"),
    ("DAOM_ALERTS__PENDING_S", "-1", "alerts.pending_s", "-1", "greater than or equal to 0"),
    ("DAOM_ALERTS__PENDING", "30", "alerts.pending", "unknown", "pending_s"),
    ("DAOM_ALERTS", "30", "alerts", "30", "dictionary"),
    ("DAOM_PRESET", "best", "preset", "'best'", "'default'"),
    ("DAOM_ALERTZ", "30", "alertz", "unknown", "alerts, bridge"),
    ("DAOM_ALERTZ__PENDING_S", "30", "alertz", "unknown", "alerts, bridge"),
    ("DAOM_PENDING_S", "30", "pending_s", "unknown", "alerts, bridge"),
    ("DAOM_ALERTS__PENDING_S__NOW", "30", "alerts.pending_s", "{'now': 30}", "number"),
    ("DAOM_SIGNALS__TTFT_S", "5", "signals.ttft_s", "got 5", "dictionary"),
    ("DAOM_SIGNALS__TTFT_S__SLO", "5", "signals.ttft_s.slo", "unknown", "slo_s, table"),
    ("DAOM_SIGNALS", "{}", "signals", "{}", "at least 1"),
    ("DAOM_KAFKA__BOOTSTRAP_SERVERS", "", "kafka.bootstrap_servers", "got ''", "at least 1"),
    ("DAOM_KAFKA__BOOTSTRAP_SERVERS", " , ", "kafka.bootstrap_servers", "' , '", "at least 1"),
    ("DAOM_KAFKA__BOOTSTRAP_SERVERS", "[]", "kafka.bootstrap_servers", "[]", "at least 1"),
]


@pytest.mark.parametrize(("variable", "text", "field", "got", "allowed"), BAD_VARIABLES)
def test_a_bad_variable_is_named_instead_of_the_file(written, variable, text, field, got, allowed):
    message = complaint(written("time: {pane_s: 5}"), {variable: text})

    assert message.startswith(f"environment variable {variable}: {field}: ")
    assert got in message
    assert allowed in message


# The schema, and the file that a configuration gives


def test_the_schema_is_valid_json_schema():
    jsonschema.Draft202012Validator.check_schema(config_schema())


@pytest.mark.parametrize("config", [Config(), Config(preset="adwin")], ids=["default", "adwin"])
def test_a_written_configuration_satisfies_the_schema(config):
    values = yaml.safe_load(config_yaml(config))

    jsonschema.validate(values, config_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("text", ["alertz: {}", "alerts: {pending_s: -1}", "preset: best"])
def test_what_the_loader_refuses_the_schema_refuses(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), config_schema())


CHANGED = "alerts: {pending_s: 30}\nkafka: {bootstrap_servers: 'b1:9092,b2:9092'}\n"


@pytest.mark.parametrize("text", ["", CHANGED, "signals: {score: {table: steps, slo_s: 0.5}}"])
def test_a_written_configuration_gives_itself(written, text):
    config = load_config(written(text), {})

    assert load_config(written(config_yaml(config)), {}) == config


# What presets make of it


@pytest.mark.parametrize("preset", ["default", "sits2026", "adwin", "kswin", "page_hinkley"])
def test_every_preset_makes_a_cells_settings(preset):
    signals = {"ttft_s": {"slo_s": 2.0, "workload": "prompt_tokens"}}

    settings = cell_settings(Config.model_validate({"preset": preset, "signals": signals}))

    assert [signal.name for signal in settings.signals] == ["ttft_s"]


def test_a_signal_is_named_after_its_column_unless_told_otherwise():
    signals = {"ttft_s": {}, "first_token": {"column": "ttft_s"}}

    settings = cell_settings(Config.model_validate({"signals": signals}))

    assert [signal.column for signal in settings.signals] == ["ttft_s", "ttft_s"]


def test_cell_settings_follow_the_configuration(written):
    text = (
        "time: {pane_s: 5, lateness_s: 2, max_ahead_s: 30}\nalerts: {silent_after_s: 90, "
        "forget_after_s: 900, stalled_after_s: 80, pending_s: 7, resolve_s: 8, min_slowdown: 0.3}"
    )

    settings = cell_settings(load_config(written(text), {}))

    assert (settings.pane_s, settings.lateness_s, settings.clock.max_ahead_s) == (5.0, 2.0, 30.0)
    assert (settings.silent_after_s, settings.stalled_after_s) == (90.0, 80.0)
    assert (settings.wait_s, settings.forget_after_s) == (30.0, 900.0)
    assert (settings.alerts.drift.pending_s, settings.alerts.drift.resolve_s) == (7.0, 8.0)
    assert settings.drift.min_slowdown == 0.3
