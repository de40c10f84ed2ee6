"""TLS and a login against a real broker, and that no secret comes to light."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, failure, gather
from kafka_kit import Broker
from strom import ConfigurationError, NoRestart
from strom.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, SimpleStringSchema
from strom.connectors.kafka.settings import KafkaProperties
from strom.testing.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

SECRET = "open-sesame-7"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and a file with its key and itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "ca.pem").write_bytes(public)
    (folder / "broker.pem").write_bytes(private + public)
    return folder / "ca.pem", folder / "broker.pem"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: Any) -> Iterator[tuple[Broker, dict[str, str]]]:
    """A broker that speaks TLS and wants a password, and what a client must say."""
    ca, own = certificate(tmp_path_factory.mktemp("tls"))
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": str(ca),
    }
    users = f'username="admin" password="x" user_admin="x" user_alice="{SECRET}"'
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }
    with KafkaCluster(settings=settings, protocol="SASL_SSL", client=client) as cluster:
        yield Broker(cluster, client), client


def reading(servers: str, topic: str, properties: dict[str, str]) -> KafkaSource:
    latest = KafkaOffsetsInitializer.latest()
    return KafkaSource(
        servers, topic, value=SimpleStringSchema(), stop=latest, properties=properties
    )


def test_with_tls_and_a_password(guarded: tuple[Broker, dict[str, str]]) -> None:
    broker, client = guarded
    topic = broker.topic()
    broker.send(topic, [b"a", b"b"])
    env = environment(config(restart=NoRestart()))
    assert gather(env.from_source(reading(broker.servers, topic, client))) == ["a", "b"]
    java = {k: v for k, v in client.items() if k not in ("sasl.username", "sasl.password")}
    java["sasl.jaas.config"] = f'...PlainLoginModule required username="alice" password="{SECRET}";'
    env = environment(config(restart=NoRestart()))
    assert gather(env.from_source(reading(broker.servers, topic, java))) == ["a", "b"]


def test_a_wrong_password_fails_in_a_sentence_without_it(
    guarded: tuple[Broker, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("strom.connectors.kafka.cluster.TIMEOUT_S", 5.0)
    broker, client = guarded
    wrong = {**client, "sasl.password": "wrong-" + SECRET}
    caplog.set_level(logging.DEBUG)
    source = reading(broker.servers, broker.topic(), wrong)
    said = failure(environment(config(restart=NoRestart())).from_source(source), 60.0)
    assert "Authentication failed" in said
    assert "credentials" in said
    assert SECRET not in said
    assert SECRET not in caplog.text
    assert SECRET not in repr(source)


def test_properties_show_no_secret() -> None:
    given = {
        "sasl.password": SECRET,
        "ssl.key.pem": SECRET,
        "sasl.oauthbearer.client.secret": SECRET,
        "ssl.keystore.password": SECRET,
        "client.id": "me",
        "enable.auto.commit": False,
    }
    properties = KafkaProperties(given)
    assert SECRET not in repr(properties)
    assert properties.shown()["client.id"] == "me"
    assert properties["enable.auto.commit"] == "false"
    assert properties.without_secrets(f"a {SECRET} b") == "a *** b"
    assert pickle.loads(pickle.dumps(properties)) == properties


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"no.such.property": SECRET}, "no.such.property"),
        ({"sasl.password": object()}, "sasl.password"),
        ({"sasl.jaas.config": f"Krb5LoginModule required keyTab={SECRET}"}, "sasl.jaas.config"),
        ({"fetch.wait.max.ms": SECRET}, "fetch.wait.max.ms"),
    ],
)
def test_a_property_that_is_refused(properties: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as error:
        reading("127.0.0.1:1", "topic", properties)
    assert SECRET not in str(error.value)
