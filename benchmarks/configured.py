"""The configuration of what is measured: the environment's, and what the command line adds to it.

`--conf KEY=VALUE` and `--backend` go into the environment of this program, so that every job, every
harness and every process that a benchmark starts is told the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from strom import ConfigurationError, JobConfig, StreamExecutionEnvironment
from strom.api.configuration.loading import PREFIX, PROPERTIES, from_yaml, key_of_variable

BACKEND = "state.backend.type"


def pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`; ValueError without a key or without `=`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"expected KEY=VALUE, got {text!r}")
    return key.strip(), value.strip()


def configure(options: Mapping[str, str]) -> None:
    """From now on these options hold, whatever the environment says. ConfigurationError names one
    that is not there, or a value that is none."""
    if not options:
        return
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        if key_of_variable(name) in options:
            del os.environ[name]
    said = from_yaml(os.environ.get(PROPERTIES, ""), PROPERTIES) | dict(options)
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in said.items())
    before, os.environ[PROPERTIES] = os.environ.get(PROPERTIES), "\n".join(lines)
    try:
        job_config()
    except ConfigurationError:
        if before is None:
            del os.environ[PROPERTIES]
        else:
            os.environ[PROPERTIES] = before
        raise


@contextmanager
def configured(options: Mapping[str, str]) -> Iterator[None]:
    """`configure`, for as long as the block lasts."""
    before = {name: os.environ[name] for name in os.environ if _says(name)}
    try:
        configure(options)
        yield
    finally:
        for name in [name for name in os.environ if _says(name)]:
            del os.environ[name]
        os.environ.update(before)


def _says(name: str) -> bool:
    return name == PROPERTIES or name.startswith(PREFIX)


def given(conf: Iterable[tuple[str, str]] | None, backend: str | None) -> dict[str, str]:
    """What a command line says."""
    return dict(conf or ()) | ({} if backend is None else {BACKEND: backend})


def job_config() -> JobConfig:
    """What jobs and harnesses are told."""
    return StreamExecutionEnvironment.get_execution_environment().get_job_config()


def backend() -> str:
    """`memory` or `rocksdb`."""
    return job_config().state.backend
