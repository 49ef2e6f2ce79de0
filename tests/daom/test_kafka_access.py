"""What says how Kafka is reached: the same rules for the plugin and for every other process."""

import dataclasses
import ssl

import pytest

from connectors.probe_settings import read_probe_settings
from daom.config import load_config
from daom.connections import KafkaConfig
from daom.errors import ConfigError
from daom.kafka_access import KafkaAccess
from tests.certificates import make_certificate

SECRET = "marker-s3cr3t"
SCRAM = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "daom",
}


def variables(settings):
    """``settings`` as the environment gives them."""
    given = {"bootstrap_servers": "b1:9093", **settings}
    return {f"DAOM_KAFKA__{name.upper()}": str(value) for name, value in given.items()}


def of_the_worker(settings):
    return load_config(None, variables(settings)).kafka.client()


def of_the_plugin(settings):
    return read_probe_settings(variables(settings)).client


BOTH = pytest.mark.parametrize("client", [of_the_worker, of_the_plugin])


def test_the_configuration_has_every_setting_of_the_access():
    names = {field.name for field in dataclasses.fields(KafkaAccess)}

    assert names <= set(KafkaConfig.model_fields)


@BOTH
def test_without_settings_kafka_is_spoken_to_in_the_clear(client):
    assert client({}) == {"bootstrap_servers": ["b1:9093"]}


@BOTH
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_and_a_password_are_told_to_every_client(client, mechanism):
    settings = client(SCRAM | {"sasl_mechanism": mechanism, "sasl_password": SECRET})

    assert settings == {
        "bootstrap_servers": ["b1:9093"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "daom",
        "sasl_plain_password": SECRET,
    }
    assert SECRET not in repr(settings)


@BOTH
@pytest.mark.parametrize("password", ["1e5", "0123", "true", "null", '"quoted"', "[1]", "a: b"])
def test_a_password_of_the_environment_is_taken_to_the_letter(client, password):
    settings = client(SCRAM | {"sasl_password": password})

    assert settings["sasl_plain_password"] == password


@BOTH
def test_a_password_may_be_in_a_file(client, tmp_path):
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")

    settings = client(SCRAM | {"sasl_password_file": file})

    assert settings["sasl_plain_password"] == SECRET


@BOTH
def test_tls_trusts_the_given_authority_and_shows_a_certificate(client, tmp_path):
    own = make_certificate(tmp_path, "client")
    files = {"ssl_ca_file": own.cert_file, "ssl_cert_file": own.cert_file}
    settings = {"security_protocol": "SSL", **files, "ssl_key_file": own.key_file}

    strict = client(settings)["ssl_context"]
    lenient = client(settings | {"ssl_check_hostname": "false"})["ssl_context"]

    assert [ca["subject"] for ca in strict.get_ca_certs()] == [((("commonName", "client"),),)]
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (lenient.check_hostname, lenient.verify_mode) == (False, ssl.CERT_REQUIRED)


@BOTH
@pytest.mark.parametrize("where", ["ssl_key_password", "ssl_key_password_file"])
def test_a_key_may_be_encrypted(client, tmp_path, where):
    own, file = make_certificate(tmp_path, "client"), tmp_path / "passphrase"
    file.write_text(f"{SECRET}\n")
    secret = {where: SECRET if where == "ssl_key_password" else file}
    settings = {"security_protocol": "SSL", "ssl_cert_file": own.cert_file}
    settings["ssl_key_file"] = own.encrypted(SECRET)

    assert SECRET not in repr(client(settings | secret))
    for wrong in ({"ssl_key_password": f"not-{SECRET}"}, {}):
        with pytest.raises(ConfigError, match=f"{own.cert_file} and .* passphrase") as caught:
            client(settings | wrong)
        assert SECRET not in f"{caught.value} {caught.value.__cause__}"


WRONG = {
    "an unknown protocol": ({"security_protocol": "TLS"}, ["security_protocol", "TLS"]),
    "no mechanism": (
        {"security_protocol": "SASL_SSL", "sasl_username": "daom", "sasl_password": SECRET},
        ["security_protocol=SASL_SSL needs sasl_mechanism", "SCRAM-SHA-512"],
    ),
    "no user": (
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_password": SECRET},
        ["security_protocol=SASL_SSL needs sasl_username"],
    ),
    "no password": (SCRAM, ["needs sasl_password or sasl_password_file"]),
    "an empty password": (SCRAM | {"sasl_password": " "}, ["sasl_password is empty"]),
    "the mask": (SCRAM | {"sasl_password": "*" * 10}, ["the mask that daom config show prints"]),
    "two passwords": (
        SCRAM | {"sasl_password": SECRET, "sasl_password_file": "/run/x"},
        ["sasl_password and sasl_password_file are given: drop one"],
    ),
    "a password in the clear": (
        {"sasl_password": SECRET},
        ["sasl_password is not used by security_protocol=PLAINTEXT", "SASL_SSL"],
    ),
    "an authority without TLS": (
        SCRAM | {"sasl_password": SECRET, "ssl_ca_file": "/ca.pem"},
        ["ssl_ca_file is not used by security_protocol=SASL_PLAINTEXT", "SASL_SSL"],
    ),
    "a key alone": (
        {"security_protocol": "SSL", "ssl_key_file": "/k.pem"},
        ["ssl_key_file is given without its ssl_cert_file"],
    ),
    "a passphrase alone": (
        {"security_protocol": "SSL", "ssl_key_password": SECRET},
        ["ssl_key_password is given without its ssl_cert_file"],
    ),
    "two passphrases": (
        {"security_protocol": "SSL", "ssl_key_password": SECRET, "ssl_key_password_file": "/run/x"},
        ["ssl_key_password and ssl_key_password_file are given: drop one"],
    ),
    "a missing password file": (
        SCRAM | {"sasl_password_file": "/nowhere/p"},
        ["kafka.sasl_password_file: /nowhere/p cannot be read: No such file"],
    ),
    "a missing authority": (
        {"security_protocol": "SSL", "ssl_ca_file": "/nowhere/ca.pem"},
        ["kafka.ssl_ca_file: /nowhere/ca.pem cannot be read: No such file"],
    ),
    "an authority that is none": (
        {"security_protocol": "SSL", "ssl_ca_file": "/etc/passwd"},
        ["kafka.ssl_ca_file: /etc/passwd holds no certificate"],
    ),
}


@BOTH
@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_together_is_one_clear_message(client, settings, words):
    with pytest.raises(ConfigError) as caught:
        client(settings)

    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert SECRET not in f"{message} {caught.value.__cause__}"


def test_a_key_of_another_certificate_is_named_not_asked_for(tmp_path):
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    access = KafkaAccess(
        security_protocol="SSL",
        ssl_cert_file=str(one.cert_file),
        ssl_key_file=str(other.key_file),
    )

    with pytest.raises(
        ConfigError, match=f"kafka.ssl_cert_file: {one.cert_file} and {other.key_file}"
    ):
        access.client(["b1:9093"])
