"""What of librdkafka is called directly: the library inside `confluent-kafka`'s wheel, by ctypes.

`confluent-kafka` hands over one Python object a record. The library itself fills arrays of
messages, which kernels (`message_kernels`) read: so only reading and writing records goes this
way. Everything else (metadata, offsets, configuration of topics) uses `confluent-kafka` as it is.
Names and contracts are those of the library's public header.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import lru_cache
from typing import Any, Final
from weakref import WeakMethod, finalize

from ...core.errors import ConfigurationError, ConnectorError

PRODUCER: Final = 0
CONSUMER: Final = 1

_CONF_OK: Final = 0
_DESTROY_NO_CONSUMER_CLOSE: Final = 0x8
"""`rd_kafka_destroy_flags`: do not leave a group; nobody here has joined one."""

_MESSAGE_TOPIC: Final = 8

ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
"""(client, code, reason, opaque), on the thread that polls."""
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
"""(client, syslog level, facility, text), on the thread that polls."""
StatsCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
"""(client, JSON, its length, opaque) -> 0, on the thread that polls."""
DeliveryCallback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
"""(client, message, opaque), on the thread that polls: what became of a record."""
QueueCallback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
"""(client, opaque), on a thread of the library: a queue is no longer empty."""


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


class PartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("cnt", c_int), ("size", c_int), ("elems", POINTER(TopicPartition)))


_SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_destroy": (None, (c_void_p,)),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_conf_set_error_cb": (None, (c_void_p, ErrorCallback)),
    "rd_kafka_conf_set_log_cb": (None, (c_void_p, LogCallback)),
    "rd_kafka_conf_set_stats_cb": (None, (c_void_p, StatsCallback)),
    "rd_kafka_conf_set_dr_msg_cb": (None, (c_void_p, DeliveryCallback)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_destroy_flags": (None, (c_void_p, c_int)),
    "rd_kafka_set_log_queue": (c_int, (c_void_p, c_void_p)),
    "rd_kafka_err2str": (c_char_p, (c_int,)),
    "rd_kafka_err2name": (c_char_p, (c_int,)),
    "rd_kafka_poll": (c_int, (c_void_p, c_int)),
    "rd_kafka_poll_set_consumer": (c_int, (c_void_p,)),
    "rd_kafka_fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    # Errors of calls that return them as objects.
    "rd_kafka_error_code": (c_int, (c_void_p,)),
    "rd_kafka_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_error_is_fatal": (c_int, (c_void_p,)),
    "rd_kafka_error_is_retriable": (c_int, (c_void_p,)),
    "rd_kafka_error_txn_requires_abort": (c_int, (c_void_p,)),
    "rd_kafka_error_destroy": (None, (c_void_p,)),
    # Reading.
    "rd_kafka_topic_partition_list_new": (POINTER(PartitionList), (c_int,)),
    "rd_kafka_topic_partition_list_add": (
        POINTER(TopicPartition),
        (POINTER(PartitionList), c_char_p, c_int32),
    ),
    "rd_kafka_topic_partition_list_destroy": (None, (POINTER(PartitionList),)),
    "rd_kafka_incremental_assign": (c_void_p, (c_void_p, POINTER(PartitionList))),
    "rd_kafka_incremental_unassign": (c_void_p, (c_void_p, POINTER(PartitionList))),
    "rd_kafka_commit": (c_int, (c_void_p, POINTER(PartitionList), c_int)),
    "rd_kafka_commit_queue": (
        c_int,
        (c_void_p, POINTER(PartitionList), c_void_p, c_void_p, c_void_p),
    ),
    "rd_kafka_queue_new": (c_void_p, (c_void_p,)),
    "rd_kafka_queue_poll": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_event_destroy": (None, (c_void_p,)),
    "rd_kafka_message_headers": (c_int, (c_void_p, c_void_p)),
    "rd_kafka_header_get_all": (c_int, (c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)),
    "rd_kafka_message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "rd_kafka_queue_get_partition": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "rd_kafka_queue_forward": (None, (c_void_p, c_void_p)),
    "rd_kafka_queue_cb_event_enable": (None, (c_void_p, QueueCallback, c_void_p)),
    "rd_kafka_queue_destroy": (None, (c_void_p,)),
    "rd_kafka_consume_batch_queue": (c_int64, (c_void_p, c_int, c_void_p, c_size_t)),
    "rd_kafka_consumer_poll": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_message_destroy": (None, (c_void_p,)),
    "rd_kafka_message_errstr": (c_char_p, (c_void_p,)),
    "rd_kafka_get_watermark_offsets": (
        c_int,
        (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64)),
    ),
    # Writing.
    "rd_kafka_topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "rd_kafka_topic_destroy": (None, (c_void_p,)),
    "rd_kafka_topic_name": (c_char_p, (c_void_p,)),
    "rd_kafka_produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "rd_kafka_flush": (c_int, (c_void_p, c_int)),
    "rd_kafka_purge": (c_int, (c_void_p, c_int)),
    "rd_kafka_outq_len": (c_int, (c_void_p,)),
    "rd_kafka_init_transactions": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_begin_transaction": (c_void_p, (c_void_p,)),
    "rd_kafka_commit_transaction": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_abort_transaction": (c_void_p, (c_void_p, c_int)),
}


@lru_cache(maxsize=1)
def library() -> Any:
    """The loaded library. ConfigurationError, saying what to install, if there is none."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise ConfigurationError(
            f"Kafka needs confluent-kafka: pip install 'strom[kafka]' ({error})"
        ) from error
    place = os.path.dirname(os.path.dirname(os.path.abspath(confluent_kafka.__file__)))
    found = glob.glob(os.path.join(place, "confluent_kafka.libs", "librdkafka-*.so*"))
    try:
        loaded = ctypes.CDLL(found[0] if found else "librdkafka.so.1")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ConfigurationError(
            "strom reads Kafka with the librdkafka inside confluent-kafka's wheel, which cannot be "
            f"used here ({error}): pip install --force-reinstall 'strom[kafka]'"
        ) from error
    return loaded


def address(name: str) -> int:
    """Where a function of the library is, for kernels that call it."""
    pointer = ctypes.cast(getattr(library(), name), c_void_p).value
    assert pointer is not None
    return pointer


def name_of(code: int) -> str:
    """`_AUTHENTICATION`, `OFFSET_OUT_OF_RANGE`, ..."""
    return str(library().rd_kafka_err2name(code).decode())


def text_of(code: int) -> str:
    """What the library says of an error."""
    return str(library().rd_kafka_err2str(code).decode())


class Failure(Exception):
    """An error that a call returned as an object. `code`: the library's; see its flags."""

    def __init__(
        self, code: int, text: str, fatal: bool, retriable: bool, requires_abort: bool
    ) -> None:
        super().__init__(text)
        self.code = code
        self.fatal = fatal
        self.retriable = retriable
        self.requires_abort = requires_abort


def check(error: int | None) -> None:
    """Raise the Failure that a call returned, and free it; None is none."""
    if not error:
        return
    of = library()
    failure = Failure(
        of.rd_kafka_error_code(error),
        of.rd_kafka_error_string(error).decode(errors="replace"),
        bool(of.rd_kafka_error_is_fatal(error)),
        bool(of.rd_kafka_error_is_retriable(error)),
        bool(of.rd_kafka_error_txn_requires_abort(error)),
    )
    of.rd_kafka_error_destroy(error)
    raise failure


class Client:
    """One client of a cluster: its handle, and what it says of itself, on the thread that polls.

    on_error(code, reason): a broker is down, or a password is wrong. on_log(level, text). on_stats:
        the statistics as JSON, as often as `statistics.interval.ms` says. on_delivery(topic, code):
        of each record with `delivery.report.only.error` unset, else of those that were not
        written. None of them may raise, and of none is the object kept whose method it is.

    A client that nobody has closed is closed when nobody has it any more: its threads would call
    what is no longer there.
    """

    def __init__(
        self,
        kind: int,
        properties: Mapping[str, str],
        on_error: Callable[[int, str], None],
        on_log: Callable[[int, str], None],
        on_stats: Callable[[bytes], None] | None = None,
        on_delivery: Callable[[str, int], None] | None = None,
    ) -> None:
        of = library()
        self._callbacks: list[Any] = []
        """Called from C, also from the client's threads, so kept until these have ended."""
        self._topics: dict[str, int] = {}
        """Handles; to be destroyed before the client."""
        configuration = _configuration(properties)
        said_error, said_log = _weakly(on_error), _weakly(on_log)
        error = ErrorCallback(lambda _, code, reason, __: said_error(code, _decoded(reason)))
        log = LogCallback(lambda _, level, __, text: said_log(level, _decoded(text)))
        self._callbacks += [error, log]
        of.rd_kafka_conf_set_error_cb(configuration, error)
        of.rd_kafka_conf_set_log_cb(configuration, log)
        if on_stats is not None:
            stats = StatsCallback(_stats(_weakly(on_stats)))
            self._callbacks.append(stats)
            of.rd_kafka_conf_set_stats_cb(configuration, stats)
        if on_delivery is not None:
            delivery = DeliveryCallback(_delivery(_weakly(on_delivery)))
            self._callbacks.append(delivery)
            of.rd_kafka_conf_set_dr_msg_cb(configuration, delivery)
        said = ctypes.create_string_buffer(512)
        self.handle: int | None = of.rd_kafka_new(kind, configuration, said, len(said))
        if not self.handle:
            of.rd_kafka_conf_destroy(configuration)
            raise ConnectorError(f"no Kafka client can be made: {_decoded(said.value)}")
        if kind == CONSUMER:
            of.rd_kafka_poll_set_consumer(self.handle)
        of.rd_kafka_set_log_queue(self.handle, None)
        kept = self.handle, self._topics, self._callbacks, os.getpid()
        self._end = finalize(self, _destroy, *kept)
        self._end.atexit = False  # a thread of the program may still be in a call

    def close(self) -> None:
        """Idempotent. Waits for the client's threads, some milliseconds, not for records."""
        self.handle = None
        self._end()

    def topic(self, name: str) -> int:
        """Its handle, as long as the client; 0 if no topic can have this name."""
        if name not in self._topics:
            made = library().rd_kafka_topic_new(self.handle, name.encode(), None)
            if made:
                self._topics[name] = int(made)
        return self._topics.get(name, 0)

    def on_data(self, queue: int, call: Callable[[], None] | None) -> None:
        """Have `call` called, by a thread of the client, when something comes to the empty queue;
        None: nothing any more. It must not raise; of a method the object is not kept."""
        callback = QueueCallback()
        if call is not None:
            said = _weakly(call)
            callback = QueueCallback(lambda _, __: said())
            self._callbacks.append(callback)
        library().rd_kafka_queue_cb_event_enable(queue, callback, None)

    def fatal(self) -> str | None:
        """Why this client can do nothing any more; None while it can."""
        said = ctypes.create_string_buffer(512)
        code = library().rd_kafka_fatal_error(self.handle, said, len(said))
        return f"{name_of(code)}: {_decoded(said.value)}" if code else None


def _destroy(handle: int, topics: dict[str, int], callbacks: list[Any], process: int) -> None:
    """`callbacks` are there until it returns. In a fork of the process there are no threads to be
    waited for."""
    if os.getpid() != process:
        return
    of = library()
    while topics:
        of.rd_kafka_topic_destroy(topics.popitem()[1])
    of.rd_kafka_destroy_flags(handle, _DESTROY_NO_CONSUMER_CLOSE)


def _weakly(function: Callable[..., None]) -> Callable[..., None]:
    """The function, without keeping the object whose method it is."""
    if not hasattr(function, "__self__"):
        return function
    known = WeakMethod(function)

    def call(*given: Any) -> None:
        method = known()
        if method is not None:
            method(*given)

    return call


def check_properties(properties: Mapping[str, str]) -> None:
    """ConfigurationError naming the first property that the library does not take."""
    library().rd_kafka_conf_destroy(_configuration(properties))


def _configuration(properties: Mapping[str, str]) -> int:
    """Logs go to the queue that is polled. ConfigurationError naming a property that is wrong, and
    never its value: it may be a secret."""
    of = library()
    configuration: int = of.rd_kafka_conf_new()
    said = ctypes.create_string_buffer(512)
    for name, value in {**properties, "log.queue": "true"}.items():
        code = of.rd_kafka_conf_set(configuration, name.encode(), value.encode(), said, len(said))
        if code != _CONF_OK:
            of.rd_kafka_conf_destroy(configuration)
            reason = _decoded(said.value).replace(value, "...") if value else _decoded(said.value)
            raise ConfigurationError(f"Kafka property '{name}' is refused: {reason}")
    return configuration


def _stats(on_stats: Callable[[bytes], None]) -> Callable[[Any, Any, int, Any], int]:
    def call(_: Any, text: Any, length: int, __: Any) -> int:
        on_stats(ctypes.string_at(text, length))
        return 0

    return call


def _delivery(on_delivery: Callable[[str, int], None]) -> Callable[[Any, Any, Any], None]:
    def call(_: Any, message: int, __: Any) -> None:
        code = c_int32.from_address(message).value
        topic = c_void_p.from_address(message + _MESSAGE_TOPIC).value
        on_delivery(_decoded(library().rd_kafka_topic_name(topic)), code)

    return call


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")


class Partitions:
    """A list of partitions with offsets, for calls that take one."""

    def __init__(self, entries: list[tuple[str, int, int]]) -> None:
        of = library()
        self.pointer = of.rd_kafka_topic_partition_list_new(len(entries))
        for topic, partition, offset in entries:
            entry = of.rd_kafka_topic_partition_list_add(self.pointer, topic.encode(), partition)
            entry.contents.offset = offset

    def __enter__(self) -> Any:
        return self.pointer

    def __exit__(self, *error: object) -> None:
        library().rd_kafka_topic_partition_list_destroy(self.pointer)


def watermarks(handle: int, topic: str, partition: int) -> tuple[int, int] | None:
    """First offset and the one after the last, as the last fetch said; None before one did."""
    low, high = c_int64(-1), c_int64(-1)
    code = library().rd_kafka_get_watermark_offsets(
        handle, topic.encode(), partition, byref(low), byref(high)
    )
    return None if code or high.value < 0 else (low.value, high.value)
