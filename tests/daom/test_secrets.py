"""A secret is in no output, whatever is asked and however wrong the rest is."""

import pytest
import yaml

from daom.config import load_config
from daom.credentials import MASK

SECRET = "marker-s3cr3t"
KAFKA = {
    "DAOM_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "DAOM_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
    "DAOM_KAFKA__SASL_USERNAME": "daom",
    "DAOM_KAFKA__SASL_PASSWORD": SECRET,
    "DAOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
}
ALERTMANAGER = {
    "DAOM_BRIDGE__BASIC_AUTH_USERNAME": "daom",
    "DAOM_BRIDGE__BASIC_AUTH_PASSWORD": SECRET,
    "DAOM_BRIDGE__ALERTMANAGERS": f"http://u:{SECRET}@am-0:9093,http://am-1",
}
SCRAPED = {"DAOM_SCRAPE_TOKEN": SECRET, "DAOM_RECEIVE_TOKEN": SECRET}


@pytest.fixture
def knowing(daom, monkeypatch):
    """Runs a command that knows every secret."""

    def command(*arguments):
        for name, value in (KAFKA | ALERTMANAGER | SCRAPED).items():
            monkeypatch.setenv(name, value)
        return daom(*arguments)

    return command


def test_the_configuration_is_shown_with_its_secrets_masked(knowing):
    done = knowing("config", "show")

    shown = yaml.safe_load(done.out)
    assert done.code == 0
    assert (shown["kafka"]["sasl_username"], shown["kafka"]["sasl_password"]) == ("daom", MASK)
    assert shown["bridge"]["basic_auth_password"] == MASK
    assert shown["bridge"]["alertmanagers"] == [f"http://u:{MASK}@am-0:9093", "http://am-1"]
    assert SECRET not in done.out + done.err


COMMANDS = {
    "check": (["config", "check"], 0),
    "topics create": (["topics", "create"], 3),
    "topics describe": (["topics", "describe"], 3),
    "replay": (["replay", "topic:"], 3),
    "change": (["change", "--model", "m", "--kind", "deploy"], 3),
    "a wrong preset": (["replay", "topic:", "--preset", "none"], 2),
    "scrape": (["scrape", "--once", "127.0.0.1:1"], 3),
}


@pytest.mark.parametrize(("arguments", "code"), COMMANDS.values(), ids=COMMANDS)
def test_no_command_says_a_secret(knowing, arguments, code):
    done = knowing(*arguments)

    assert done.code == code, done.err
    assert SECRET not in done.out + done.err


BROKEN = {
    "no YAML": f"kafka: {{sasl_password: {SECRET}",
    "a tag": f"kafka:\n  sasl_password: !{SECRET}\n",
    "an alias": f"kafka:\n  sasl_password: *{SECRET}\n",
    "a section that is a text": f"kafka: sasl_password={SECRET}",
    "a section that is a list": f"bridge: [{SECRET}]",
    "a password that is a list": f"kafka: {{sasl_password: [{SECRET}]}}",
    "urls that are lists": f"bridge: {{alertmanagers: [[{SECRET}]]}}",
    "a password without its user": f"bridge: {{basic_auth_password: {SECRET}}}",
    "a passphrase that is a list": f"kafka: {{ssl_key_password: [{SECRET}]}}",
    "a passphrase that is not used": f"kafka: {{ssl_key_password: {SECRET}}}",
    "a misspelt field": f"kafka: {{sasl_pasword: {SECRET}}}",
    "not used": f"kafka: {{sasl_password: {SECRET}}}",
    "two tokens": f"bridge: {{bearer_token: {SECRET}, bearer_token_file: x}}",
    "user and token": f"bridge: {{basic_auth_username: u, basic_auth_password: {SECRET}, "
    "bearer_token: x}",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_complained_of_without_its_secrets(daom, tmp_path, text):
    file = tmp_path / "daom.yaml"
    file.write_text(text)

    done = daom("config", "check", file)

    assert done.code == 2
    assert f"daom: {file}: " in done.err
    assert SECRET not in done.out + done.err


def test_a_variable_with_a_broken_section_is_named_and_not_shown(daom, monkeypatch):
    monkeypatch.setenv("DAOM_KAFKA", f"{{sasl_password: {SECRET}}}")

    done = daom("config", "show")

    assert (done.code, "DAOM_KAFKA: kafka: got a str" in done.err) == (2, True)
    assert SECRET not in done.err


def test_a_number_for_a_password_must_be_quoted(daom, tmp_path):
    """YAML reads 0123 as 83."""
    file = tmp_path / "daom.yaml"
    file.write_text("kafka: {sasl_password: 0123}")

    done = daom("config", "check", file)

    assert "kafka.sasl_password: a int was read; write the text in quotes" in done.err


def test_neither_the_configuration_nor_its_parts_represent_a_secret():
    config = load_config(None, KAFKA | ALERTMANAGER)

    shown = f"{config.kafka!r} {config.kafka.client()} {config.bridge.sink_options()}"

    assert MASK in shown
    assert SECRET not in shown


def test_a_token_for_engines_is_no_setting():
    assert load_config(None, SCRAPED) == load_config(None, {})
