"""A job's configuration as text by name, as it may be shown: what may be a secret is not in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from ...core.config import JobConfig
from ...core.redaction import HIDDEN, is_secret, redacted
from ...core.texts import encodable

MOST_TEXT: Final = 2_000
"""Characters of one value."""


def shown_config(config: JobConfig) -> tuple[dict[str, str], dict[str, str]]:
    """(options, the job's own parameters), both by their names, such as `checkpoint.interval`."""
    options: dict[str, str] = {}
    _into(options, "", replace(config, restart=config.effective_restart))
    parameters = {
        encodable(str(name)): _shown(str(name), value)
        for name, value in config.job_parameters.items()
    }
    return {k: v for k, v in options.items() if k != "job_parameters"}, parameters


def _into(found: dict[str, str], name: str, value: Any) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        if name == "restart":
            found[name] = type(value).__name__
        for field in fields(value):
            _into(found, f"{name}.{field.name}" if name else field.name, getattr(value, field.name))
    elif isinstance(value, Mapping):
        if name != "job_parameters":
            for key, inner in value.items():
                _into(found, f"{name}.{key}", inner)
    else:
        found[encodable(name)] = _shown(name, value)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if is_secret(name) or name.startswith("runtime_env.env_vars."):
        return HIDDEN
    match value:
        case timedelta():
            return f"{round(value.total_seconds() * 1000)} ms"
        case Enum():
            return value.name
        case bool():
            return str(value).lower()
        case tuple() | list():
            return ", ".join(_shown(name, one) for one in value)[:MOST_TEXT]
    return redacted(str(value), MOST_TEXT)
