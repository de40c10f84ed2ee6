"""Options of what travels between tasks: buffers, addresses, encryption, heartbeats."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from .memory import MemorySize
from .registry import Apply, known
from .settings import Settings
from .values import BOOLEAN, DURATION, INTEGER, MEMORY, STRING


def _exchange(name: str) -> Apply:
    return lambda settings, value: settings.change_exchange(**{name: value})


def _bytes(name: str) -> Apply:
    return lambda settings, value: settings.change_exchange(**{name: value.bytes_size})


def _set_bind_host(settings: Settings, value: str) -> None:
    """Empty is as unsaid."""
    settings.change_exchange(bind_host=value or None)


EXCHANGE_OPTIONS: Final = (
    known(
        "strom.exchange.buffer-size",
        MEMORY,
        MemorySize(1 << 20),
        _bytes("buffer_bytes"),
        "the most that a buffer holds",
    ),
    known(
        "strom.exchange.min-buffer-size",
        MEMORY,
        MemorySize(32 << 10),
        _bytes("min_buffer_bytes"),
        "from which on it is sent if its receiver waits",
    ),
    known(
        "strom.exchange.exclusive-buffers",
        INTEGER,
        2,
        _exchange("exclusive_buffers"),
        "of a channel, at its receiver",
    ),
    known(
        "strom.exchange.floating-buffers",
        INTEGER,
        8,
        _exchange("floating_buffers"),
        "shared by channels",
    ),
    known(
        "strom.exchange.shared-memory",
        BOOLEAN,
        True,
        _exchange("shared_memory"),
        "whether buffers between tasks of one machine go through memory that both have, and not "
        "through the kernel",
    ),
    known(
        "strom.exchange.bind-host",
        STRING,
        None,
        _set_bind_host,
        "address that tasks listen on; default: the loopback interface or, of a job whose tasks "
        "are on several machines, the address that Ray knows their machine by",
    ),
    known(
        "security.ssl.internal.enabled",
        BOOLEAN,
        False,
        _exchange("encrypted"),
        "true: what travels between machines is encrypted, with a certificate that each job gets "
        "of its own",
    ),
    known(
        "heartbeat.interval",
        DURATION,
        timedelta(seconds=10),
        _exchange("heartbeat_interval"),
        "between two heartbeats to a task on another machine",
    ),
    known(
        "heartbeat.timeout",
        DURATION,
        timedelta(seconds=50),
        _exchange("heartbeat_timeout"),
        "how long such a task may be silent before it counts as dead",
    ),
)
