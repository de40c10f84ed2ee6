"""What a program says about its Spark, and the check that Spark can be had at all."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from ...core.errors import ConfigurationError


@dataclass(frozen=True)
class SparkOptions:
    """The Spark session that all Spark sources and sinks of a program share.

    `executor_cores` is how many Spark tasks one executor runs at once; `executor_cpus` is what Ray
    sets aside for it (0: it shares the CPUs with the stream's tasks, so that a job whose slots take
    the whole cluster can still read through Spark). `configuration` holds further Spark settings;
    they appear on the JVMs' command lines, so secrets do not belong there.

    `packages` are Maven coordinates (`group:artifact:version`) of what Spark is to have beside its
    own jars; they are downloaded once and kept (see `jars`). The Kafka and Delta connectors
    ask for theirs by themselves. `jars` names a folder that holds all such jars, for machines
    without a network.
    """

    executors: int = 1
    executor_cores: int = 2
    executor_memory: str = "768m"
    executor_cpus: float = 0.0
    driver_memory: str = "768m"
    start_timeout_s: float = 120.0
    configuration: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    jars: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.packages, str):
            raise ConfigurationError(
                f"SparkOptions(packages={self.packages!r}): a list of coordinates is expected"
            )
        if self.executors < 1 or self.executor_cores < 1:
            raise ConfigurationError(
                f"Spark needs at least one executor with one core: executors is {self.executors}, "
                f"executor_cores is {self.executor_cores}"
            )
        if self.executor_cpus < 0 or self.start_timeout_s <= 0:
            raise ConfigurationError(
                f"executor_cpus ({self.executor_cpus}) must not be negative and start_timeout_s "
                f"({self.start_timeout_s}) must be positive"
            )

    def differences(self, other: SparkOptions) -> str:
        """`a: 1 and 2, b: ...` for the fields in which the two differ, without their values where
        these may be private; empty if they are equal."""
        parts = []
        for spec in fields(self):
            mine, theirs = getattr(self, spec.name), getattr(other, spec.name)
            if mine != theirs:
                shown = "" if spec.name == "configuration" else f": {mine!r} and {theirs!r}"
                parts.append(f"{spec.name}{shown}")
        return ", ".join(parts)


def require_spark() -> None:
    """Raise ConfigurationError unless pyspark and RayDP are installed."""
    missing = [
        package
        for module, package in (("pyspark", "pyspark"), ("raydp", "raydp"), ("ray", "ray"))
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ConfigurationError(
            f"the Spark connectors need {' and '.join(missing)}: pip install 'strom[spark]'"
        )


def require_ray(what: str) -> None:
    """Raise ConfigurationError unless this process is connected to Ray. `what` names the user."""
    import ray

    if not ray.is_initialized():
        raise ConfigurationError(
            f"{what} runs Spark inside Ray, and this process is not connected to Ray: run the job "
            "on the Ray host, or call ray.init() first"
        )
