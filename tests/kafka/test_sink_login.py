"""A cluster that asks for a login: records and recovery get in with it, and nobody sees it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_sink_kit import context, exactly_once, prepare, put
from strom.connectors.kafka import KafkaSink
from strom.connectors.kafka.settings import KafkaProperties
from strom.connectors.kafka.transaction_admin import KafkaTransactions, admin_settings
from strom.core.errors import ConnectorError
from strom.testing.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "hidden-word",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The bootstrap servers; topic `t` is there."""
    users = 'username="me" password="hidden-word" user_me="hidden-word"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULE} {users};",
    }
    with KafkaCluster(settings=settings) as cluster:
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **LOGIN})
        client.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        yield cluster.bootstrap_servers


def seen(servers: str) -> list[Any]:
    from confluent_kafka import Consumer

    told = {"group.id": "x", "auto.offset.reset": "earliest", "bootstrap.servers": servers}
    consumer = Consumer({**told, **LOGIN})
    consumer.subscribe(["t"])
    found = consumer.consume(2, 20.0)
    consumer.close()
    return [message.value() for message in found]


def test_records_and_recovery_get_in_and_no_secret_is_logged(
    guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = exactly_once(guarded, "t", "p", properties={**LOGIN, "debug": "security,broker"})
    writer = sink.create_writer(context())
    put(writer, "a", "b")
    made = prepare(writer)
    again = sink.create_writer(context(attempt=1))
    again.recover(made)
    assert seen(guarded) == [b"a", b"b"]
    writer.close()
    again.close()
    assert any(record.name.startswith("kafka") for record in caplog.records)
    assert any("Kafka producer" in record.message for record in caplog.records)
    assert "hidden-word" not in caplog.text


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_wrong_password_is_said_at_once(
    guarded: str, delivery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {**LOGIN, "sasl.password": "wrong-word"}
    prefix = None if delivery == "at-least-once" else "p"
    sink = KafkaSink(
        guarded, "t", delivery=delivery, transactional_id_prefix=prefix, properties=wrong
    )
    writer = sink.create_writer(context())
    with pytest.raises(ConnectorError, match="lets this program not in") as raised:
        write_and_prepare(writer)
    writer.close()
    assert "wrong-word" not in f"{raised.value} {caplog.text}"


def write_and_prepare(writer: Any) -> None:
    put(writer, "a")
    prepare(writer)


def test_recovery_with_a_wrong_password_is_said_at_once(guarded: str) -> None:
    wrong = KafkaProperties({**LOGIN, "sasl.password": "wrong-word", "bootstrap.servers": guarded})
    with KafkaTransactions(wrong, 60_000) as cluster, pytest.raises(ConnectorError) as raised:
        cluster.list(["Ongoing"])
    assert "cannot list transactions" in str(raised.value)
    assert "LoginRefusedError" in str(raised.value)
    assert "Authentication failed" in str(raised.value)
    assert "wrong-word" not in str(raised.value)


def test_settings_of_tls_are_passed_on() -> None:
    told = {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "ssl",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "key.pem",
        "ssl.key.password": "hidden-word",
        "ssl.endpoint.identification.algorithm": "none",
    }
    made = admin_settings(KafkaProperties(told))
    del made["bootstrap_timeout_ms"]
    assert made == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SSL",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "me.pem",
        "ssl_keyfile": "key.pem",
        "ssl_password": "hidden-word",
        "ssl_check_hostname": False,
    }
