"""Transactions of other producers: committed, described, listed and fenced with the protocol's own
requests, by `kafka-python`'s connections. librdkafka ends only transactions of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from ...core.errors import ConfigurationError, ConnectorError
from .cluster import REFUSALS
from .settings import KafkaProperties
from .transactions import Described, TransactionCommittable

log = logging.getLogger("strom")

TIMEOUT_S: Final = 60.0
"""How long what passes is retried: a broker that starts, a coordinator that moves."""

PAUSE_S: Final = 0.1

LOGIN_S: Final = 5.0
"""How long a broker may take to refuse a login."""

_LOOK_S: Final = 0.5

_BOOTSTRAP_MS: Final = 15_000

_KNOWN: Final = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "client.id": "client_id",
}

_LOGINS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")

_REFUSED: Final = (
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.engine.location",
)
"""What `kafka-python` has no counterpart of."""

_TELLING: Final = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")
"""Loggers that at level DEBUG write whole requests, logins included."""

_BUSY: Final = frozenset({14, 15, 16, 51, 7, 6, 13})
"""Errors that pass: the coordinator loads, moves, or ends a transaction."""

_END_VERSION: Final = 4
"""From 5 on each end bumps the epoch, of which the transaction's own producer would not know."""

_INIT_VERSION: Final = 4

Answer = TypeVar("Answer")


def admin_settings(properties: KafkaProperties) -> dict[str, Any]:
    """Properties in `kafka-python`'s names. ConfigurationError for a login it cannot do."""
    made: dict[str, Any] = {"bootstrap_servers": properties["bootstrap.servers"].split(",")}
    made["bootstrap_timeout_ms"] = _BOOTSTRAP_MS
    made["security_protocol"] = properties.get("security.protocol", "plaintext").upper()
    refused = [name for name in _REFUSED if name in properties]
    if properties.get("enable.ssl.certificate.verification") == "false":
        refused.append("enable.ssl.certificate.verification")
    if refused:
        raise ConfigurationError(
            f"exactly-once delivery cannot use the Kafka property '{refused[0]}': recovery "
            "connects with ssl.ca.location, ssl.certificate.location and ssl.key.location only"
        )
    if made["security_protocol"].startswith("SASL"):
        mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "GSSAPI")
        if mechanism not in _LOGINS:
            raise ConfigurationError(
                f"exactly-once delivery cannot use sasl.mechanism={mechanism}: recovery logs in "
                f"with one of {list(_LOGINS)}; choose one, or delivery='at-least-once'"
            )
        made["sasl_mechanism"] = mechanism
    for name, other in _KNOWN.items():
        if name in properties:
            made[other] = properties[name]
    if properties.get("ssl.endpoint.identification.algorithm", "https") in ("none", ""):
        made["ssl_check_hostname"] = False
    return made


class LoginRefusedError(Exception):
    """The cluster lets this program not in."""


def refused_login(properties: KafkaProperties) -> str | None:
    """Why the cluster lets this program not in, as librdkafka says; None: it does, or does not
    answer. `kafka-python` tries a login that is refused again until its time-out, and mostly does
    not hear why: the broker hangs up behind its answer, and it sees that first."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    refusals: list[str] = []

    def on_error(error: Any) -> None:
        if error.name() in REFUSALS:
            refusals.append(str(error.str()).rstrip(". "))

    try:
        client = AdminClient({**properties, "log_level": "3", "error_cb": on_error}, logger=log)
    except (KafkaException, ValueError, TypeError):  # that is told where records are produced
        return None
    deadline = time.monotonic() + LOGIN_S
    while not refusals and time.monotonic() < deadline:
        with suppress(KafkaException):
            client.list_topics(timeout=_LOOK_S)
            return None
        client.poll(0)
    return refusals[0] if refusals else None


class KafkaTransactions:
    """A `TransactionCluster`: connects at the first question; to be closed. From one thread."""

    def __init__(
        self,
        properties: KafkaProperties,
        timeout_ms: int,
        going: Callable[[], bool] = lambda: True,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """timeout_ms: the transactions' time-out. going: what passes is retried while this says
        so."""
        self._properties = properties
        self._timeout_ms = timeout_ms
        self._going = going
        self._timeout_s = timeout_s
        self._admin: Any = None

    def __enter__(self) -> KafkaTransactions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def end(self, committable: TransactionCommittable) -> str | None:
        from kafka.protocol.producer import EndTxnRequest

        request = lambda: EndTxnRequest(
            transactional_id=committable.transactional_id,
            producer_id=committable.producer_id,
            producer_epoch=committable.epoch,
            committed=True,
            max_version=_END_VERSION,
        )
        answer = self._until_done(committable.transactional_id, request, "commit")
        code = int(answer.error_code)
        return None if code == 0 else _named(code)

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, Described]:
        found: dict[str, Described] = {}
        for one in transactional_ids:
            state = self._retried(f"describe '{one}'", partial(self._described, one))
            if state is not None:
                found[one] = state
        return found

    def list(self, states: Iterable[str]) -> Iterable[str]:
        wanted = list(states)

        def ask() -> dict[Any, Any]:
            found: dict[Any, Any] = self._connected().list_transactions(state_filters=wanted)
            return found

        listed = self._retried("list transactions", ask)
        return [one.transactional_id for of_broker in listed.values() for one in of_broker]

    def fence(self, transactional_id: str) -> tuple[int, int]:
        from kafka.protocol.producer import InitProducerIdRequest

        request = lambda: InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            max_version=_INIT_VERSION,
        )
        answer = self._until_done(transactional_id, request, "fence")
        if answer.error_code:
            raise ConnectorError(
                f"Kafka transaction '{transactional_id}' of a former attempt cannot be ended: "
                f"{_named(int(answer.error_code))}"
            )
        return int(answer.producer_id), int(answer.producer_epoch)

    def _described(self, transactional_id: str) -> Described | None:
        import kafka.errors

        self._forget_coordinators()
        try:
            answer = self._connected().describe_transactions([transactional_id])
        except kafka.errors.TransactionalIdNotFoundError:
            return None
        one = answer[transactional_id]
        state = getattr(one.state, "value", one.state)
        return Described(transactional_id, str(state), one.producer_id, one.producer_epoch)

    def _until_done(self, transactional_id: str, request: Callable[[], Any], what: str) -> Any:
        """Send to the id's coordinator until it says something for good: its answer."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._retried(
                f"{what} '{transactional_id}'", lambda: self._sent(transactional_id, request())
            )
            if int(answer.error_code) not in _BUSY or self._is_over(deadline):
                return answer
            time.sleep(PAUSE_S)

    def _sent(self, transactional_id: str, request: Any) -> Any:
        from kafka.protocol.metadata import CoordinatorType

        admin = self._connected()
        self._forget_coordinators()

        async def ask() -> Any:
            node = await admin._find_coordinator_id(
                transactional_id, key_type=CoordinatorType.TRANSACTION
            )
            return await admin._manager.send(request, node_id=node)

        return admin._manager.run(ask)

    def _forget_coordinators(self) -> None:
        """They may have moved."""
        self._connected()._manager.cluster._coordinators.clear()

    def _retried(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """The answer, asked for again while brokers are away."""
        import kafka.errors

        for_ever = (
            kafka.errors.SaslAuthenticationFailedError,
            kafka.errors.AuthorizationError,
            kafka.errors.UnsupportedVersionError,
            kafka.errors.KafkaConfigurationError,
        )
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except LoginRefusedError as error:
                raise self._failure(what, error) from None
            except (kafka.errors.KafkaError, OSError) as error:
                if isinstance(error, for_ever) or self._is_over(deadline):
                    raise self._failure(what, error) from None
            time.sleep(PAUSE_S)

    def _is_over(self, deadline: float) -> bool:
        return time.monotonic() > deadline or not self._going()

    def _connected(self) -> Any:
        if self._admin is None:
            try:
                from kafka import KafkaAdminClient
                from kafka.net.compat import KafkaNetClient
            except ImportError as error:
                raise ConfigurationError(
                    "exactly-once delivery to Kafka needs kafka-python: pip install "
                    f"'strom[kafka]' ({error})"
                ) from error
            for name in _TELLING:
                logger = logging.getLogger(name)
                logger.setLevel(max(logging.INFO, logger.level))
            if (why := refused_login(self._properties)) is not None:
                raise LoginRefusedError(why)
            clients: list[Any] = []

            def client(**settings: Any) -> Any:
                clients.append(KafkaNetClient(**settings))
                return clients[0]

            try:
                self._admin = KafkaAdminClient(
                    **admin_settings(self._properties), kafka_client=client
                )
            except BaseException:
                for one in clients:  # it leaves its thread behind
                    one.close()
                    one._manager._net.stop()
                raise
        return self._admin

    def _failure(self, what: str, error: BaseException) -> ConnectorError:
        said = self._properties.without_secrets(f"{type(error).__name__}: {error}".rstrip(": "))
        servers = self._properties.get("bootstrap.servers", "")
        return ConnectorError(
            f"cannot {what} at the Kafka cluster '{servers}': {said}. Look whether it runs, and "
            "whether the credentials and rights of this program are right"
        )


def _named(code: int) -> str:
    import kafka.errors

    found = kafka.errors.for_code(code)
    return str(getattr(found, "message", found.__name__))
