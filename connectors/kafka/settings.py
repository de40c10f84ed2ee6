"""Properties of Kafka clients: librdkafka's names, Java's where programs for Flink have them, and
secrets that are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.errors import ConfigurationError
from ...core.redaction import HIDDEN
from ...core.redaction import is_secret as is_secret_name

_SECRET: Final = re.compile(r"pem$|oauthbearer\.config")
"""Properties whose values are shown to nobody, beside what is a secret anywhere."""

_JAVA_ONLY: Final = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "max.poll.records",
    }
)
"""What a Java client must be told and this one need not."""

_JAVA_NAMES: Final[Mapping[str, str]] = {
    "acks": "request.required.acks",
    "buffer.memory": "queue.buffering.max.kbytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
}
"""Other names of one property. `buffer.memory` is in bytes, its other name in KiB."""

_LOGIN: Final = re.compile(r"""\b(username|password)\s*=\s*["']([^"']*)["']""")


class KafkaProperties(Mapping[str, str]):
    """What a client is configured with: immutable, picklable, and its text shows no secret."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """`given`: librdkafka's properties, or Java's where these differ. ConfigurationError for
        values that are no plain values, and for a login that cannot be understood."""
        self._values: dict[str, str] = {}
        for name, value in given.items():
            self._take(name, value)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"KafkaProperties({self.shown()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaProperties) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values.items())))

    def shown(self) -> dict[str, str]:
        """For people: without secrets."""
        return {name: HIDDEN if is_secret(name) else text for name, text in self._values.items()}

    def with_defaults(self, defaults: Mapping[str, str]) -> KafkaProperties:
        """These, and of `defaults` what they do not say."""
        return KafkaProperties({**defaults, **self._values})

    def without_secrets(self, text: str) -> str:
        """`text` with every secret that these have cut out of it."""
        for name, value in self._values.items():
            if is_secret(name) and value not in ("", "true", "false"):
                text = text.replace(value, HIDDEN)
        return text

    def _take(self, name: str, value: Any) -> None:
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise ConfigurationError(
                f"Kafka property {name!r} must be text, a number or a bool, is of type "
                f"{type(value).__name__}"
            )
        if name in _JAVA_ONLY:
            return
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name == "sasl.jaas.config":
            self._log_in(text)
        elif name == "buffer.memory":
            self._values[_JAVA_NAMES[name]] = str(max(1, int(float(text)) // 1024))
        else:
            self._values[_JAVA_NAMES.get(name, name)] = text

    def _log_in(self, text: str) -> None:
        """Java's one line for a login module with user and password."""
        found = dict(_LOGIN.findall(text))
        if set(found) != {"username", "password"}:
            raise ConfigurationError(
                "Kafka property 'sasl.jaas.config' is understood with username=\"...\" and "
                'password="..." only: set sasl.mechanism and what it needs as properties instead'
            )
        self._values["sasl.username"] = found["username"]
        self._values["sasl.password"] = found["password"]


def is_secret(name: str) -> bool:
    """Whether a property's value may be shown to nobody."""
    return is_secret_name(name) or _SECRET.search(name.lower()) is not None
