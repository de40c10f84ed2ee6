"""What whoever started this program has asked for it, as `strom run -s` does: it counts for
programs that look at no configuration beside their own, too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Final

from ...core.config import JobConfig
from .applying import ambient_configuration, configure
from .settings import Settings

SUBMITTED_OPTIONS: Final = "STROM_SUBMITTED_OPTIONS"
"""The environment variable that names, with commas, the options that the environment has from who
started the program, and not from whoever set it up."""


def names_of(keys: Iterable[str]) -> dict[str, str]:
    """What an environment has for these options to be known as asked for."""
    return {SUBMITTED_OPTIONS: ",".join(keys)}


def with_submitted(config: JobConfig, environment: Mapping[str, str] | None = None) -> JobConfig:
    """All settings of a program, with what was asked for this run where they are as by default.
    ConfigurationError names a variable that is wrong."""
    known = os.environ if environment is None else environment
    keys = known.get(SUBMITTED_OPTIONS)
    if not keys:
        return config
    plain = JobConfig()
    settings = Settings.of(plain)
    configure(settings, ambient_configuration(known).only(keys.split(",")))
    asked = settings.job_config()
    changed = {
        one.name: getattr(asked, one.name)
        for one in fields(JobConfig)
        if getattr(config, one.name) == getattr(plain, one.name) != getattr(asked, one.name)
    }
    return replace(config, **changed)
