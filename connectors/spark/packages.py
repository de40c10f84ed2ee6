"""Jars that Spark needs beside its own: from Maven by their coordinates, or from a folder.

What PySpark brings along already is left out: Spark's Kafka connector needs half of Hadoop by its
description, and of its thirteen jars four are missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ...core.errors import ConfigurationError
from .jars import jars_of

SPARK_VERSION: Final = "3.5.7"

KAFKA: Final = (f"org.apache.spark:spark-sql-kafka-0-10_2.12:{SPARK_VERSION}",)
"""What the Kafka connectors need."""

DELTA: Final = ("io.delta:delta-spark_2.12:3.3.2",)
"""What reads and writes Delta tables."""

BY_FORMAT: Final[Mapping[str, Sequence[str]]] = {"kafka": KAFKA, "delta": DELTA}
"""What a query needs that names such a format."""

DELTA_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session of the program's own is told to know Delta, beside its jars (`delta_jars`)."""


def jars_for(packages: Sequence[str], folder: str | None) -> list[str]:
    """Paths of the jars of these packages that are not PySpark's own, in order of names.

    folder: where the jars lie on a machine without a network; all jars in it are taken, and nothing
    is downloaded. Raises ConfigurationError if they are not there and cannot be had."""
    if not packages:
        return []
    found = jars_of(packages) if folder is None else _in_folder(folder, packages)
    own = _own()
    return [str(jar) for jar in found if jar.name not in own]


def kafka_jars(folder: str | None = None) -> str:
    """The setting `spark.jars` of a session of the program's own that reads or writes Kafka. Those
    of strom's connectors, and of queries that the gateway runs, are there without it.

    folder: as of SparkOptions(jars=...)."""
    return ",".join(jars_for(KAFKA, folder))


def delta_jars(folder: str | None = None) -> str:
    """The setting `spark.jars` of a session of the program's own that reads or writes Delta tables;
    it needs DELTA_SETTINGS, too. What the gateway runs has both without being told.

    folder: as of SparkOptions(jars=...)."""
    return ",".join(jars_for(DELTA, folder))


def names_delta(packages: Iterable[str]) -> bool:
    """Whether Delta is among these, in whatever version."""
    return any(one.startswith("io.delta:delta-spark_") for one in packages)


def _in_folder(folder: str, packages: Sequence[str]) -> list[Path]:
    jars = sorted(Path(folder).rglob("*.jar"))
    names = {jar.name for jar in jars}
    missing = [one for one in packages if f"{'-'.join(one.split(':')[1:])}.jar" not in names]
    if missing:
        raise ConfigurationError(
            f"SparkOptions(jars={folder!r}): {', '.join(missing)} is not in that folder; copy "
            "there what strom.connectors.spark.jars.jars_of(...) finds on a machine with a network"
        )
    return [jar.absolute() for jar in jars]


def _own() -> frozenset[str]:
    """Names of the jars that every Spark of this installation has."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    return frozenset(path.name for path in (Path(home) / "jars").glob("*.jar"))
