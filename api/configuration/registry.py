"""An option that means something here, and what it sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .options import ConfigOption
from .settings import Settings
from .values import ValueType

Apply = Callable[[Settings, Any], Any]


@dataclass(frozen=True)
class Known:
    """`apply` None: one of a group that is looked at together (`groups`)."""

    option: ConfigOption[Any]
    apply: Apply | None


def known(
    key: str,
    type: ValueType[Any],
    default: Any,
    apply: Apply | None,
    description: str,
    *old_keys: str,
) -> Known:
    """`default`: what holds without it; None if there is no value for that."""
    return Known(ConfigOption(key, type, default, description, old_keys), apply)


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)
