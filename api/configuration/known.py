"""The one registry of options: each key that means something here, and what it sets.

`docs/configuration.md` has a row for each; a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from ...core.checks import check_count
from ...core.errors import ConfigurationError
from .adaptive_options import ADAPTIVE
from .autoscaler_options import AUTOSCALER
from .checkpoint_options import CHECKPOINT_OPTIONS
from .commit_options import COMMITS
from .exchange_options import EXCHANGE_OPTIONS
from .file_options import FILES
from .groups import RESTART
from .logging_options import LOGGING, TRACES
from .modes import RuntimeExecutionMode
from .placement_options import PLACEMENT
from .ray_options import RAY_OPTIONS
from .record_options import RECORD
from .registry import Apply, known, millis
from .reporters import REPORTER_OPTIONS
from .settings import Settings
from .state_options import STATE_OPTIONS
from .values import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INTEGER,
    MAP,
    STRING,
    choice,
    enum_type,
)


def _setting(name: str) -> Apply:
    return lambda settings, value: settings.change(**{name: value})


def _attribute(name: str) -> Apply:
    return lambda settings, value: setattr(settings, name, value)


def _ignored(name: str) -> Apply:
    return lambda settings, value: setattr(settings.ignored, name, value)


def _set_parallelism(settings: Settings, value: int) -> None:
    check_count("parallelism", value, 1)
    settings.set_default_parallelism(value)


def _set_max_parallelism(settings: Settings, value: int) -> None:
    """-1 is Flink's default: not said."""
    if value != -1:
        check_count("max_parallelism", value, 1, 32768)
        settings.max_parallelism = value


def _set_claim_mode(settings: Settings, value: str) -> None:
    if value == "legacy":
        raise ConfigurationError(
            "claim mode LEGACY is not there: what a job starts from is its own from then on "
            "(CLAIM), or stays as it is (NO_CLAIM)"
        )
    settings.change(claim_restored=value == "claim")


def _set_ray_interval(settings: Settings, value: timedelta) -> None:
    settings.change(metrics=replace(settings.base.metrics, ray_interval=value or None))


def _set_latency_interval(settings: Settings, value: timedelta) -> None:
    settings.change(metrics=replace(settings.base.metrics, latency_interval=value or None))


def _set_hot_keys(settings: Settings, value: int) -> None:
    settings.change(metrics=replace(settings.base.metrics, hot_keys=value))


_CLAIMS: Final = choice("String", {"no_claim": "no_claim", "claim": "claim", "legacy": "legacy"})

_FAILOVERS: Final = choice("String", {"region": "region", "full": "full"})

_HOSTS: Final = choice("String", {"local": "local", "ray": "ray"})


KNOWN: Final = (
    known("parallelism.default", INTEGER, 1, _set_parallelism, "of operators that set none"),
    known(
        "pipeline.max-parallelism",
        INTEGER,
        128,
        _set_max_parallelism,
        "key groups of operators that set none; -1: the default",
    ),
    known("pipeline.name", STRING, None, _attribute("job_name"), "of jobs that are given none"),
    known(
        "pipeline.auto-watermark-interval",
        DURATION,
        millis(200),
        _setting("auto_watermark_interval"),
        "between two watermarks of a source",
    ),
    known(
        "pipeline.operator-chaining.enabled",
        BOOLEAN,
        True,
        _setting("chaining"),
        "whether operators share tasks",
        "pipeline.operator-chaining",
    ),
    known(
        "pipeline.global-job-parameters",
        MAP,
        None,
        _setting("job_parameters"),
        "what functions get from `get_job_parameter`",
    ),
    known(
        "pipeline.auto-generate-uids",
        BOOLEAN,
        True,
        _attribute("auto_uids"),
        "false: every operator needs a uid",
    ),
    known(
        "pipeline.object-reuse",
        BOOLEAN,
        False,
        _setting("object_reuse"),
        "true: several readers of a record get one object, and must not change it",
    ),
    known(
        "execution.runtime-mode",
        enum_type(RuntimeExecutionMode),
        RuntimeExecutionMode.STREAMING,
        Settings.check_runtime_mode,
        "`STREAMING` or `AUTOMATIC`, which is the same; `BATCH` is not there yet",
    ),
    known(
        "execution.buffer-timeout.interval",
        DURATION,
        millis(10),
        lambda settings, value: settings.time_buffers(interval=value),
        "how long a record may wait for its buffer to fill; 0: not at all",
        "execution.buffer-timeout",
    ),
    known(
        "execution.buffer-timeout.enabled",
        BOOLEAN,
        True,
        lambda settings, value: settings.time_buffers(timed=value),
        "false: a buffer is sent when it is full only",
    ),
    *CHECKPOINT_OPTIONS,
    known(
        "execution.state-recovery.path",
        STRING,
        None,
        _setting("restore_from"),
        "what the next job starts from: a savepoint, a checkpoint, or `<root>/<job>` for its "
        "newest one",
        "execution.savepoint.path",
    ),
    known(
        "execution.state-recovery.ignore-unclaimed-state",
        BOOLEAN,
        False,
        _setting("allow_unmatched_state"),
        "whether state of operators that are gone may be dropped",
        "execution.savepoint.ignore-unclaimed-state",
    ),
    known(
        "execution.state-recovery.claim-mode",
        _CLAIMS,
        "no_claim",
        _set_claim_mode,
        "`NO_CLAIM`: what a job starts from stays as it is; `CLAIM`: it is the job's, and deleted "
        "when it is not needed any more",
        "execution.savepoint-restore-mode",
    ),
    *STATE_OPTIONS,
    *RESTART,
    known(
        "jobmanager.execution.failover-strategy",
        _FAILOVERS,
        "region",
        _setting("failover_strategy"),
        "what restarts with a task that fails: `region`: all that exchanges records with it, "
        "directly or not; `full`: the job",
    ),
    known(
        "task.cancellation.timeout",
        DURATION,
        timedelta(seconds=10),
        _setting("cancellation_timeout"),
        "after which a task that will not stop is let go of, or loses its process",
    ),
    known(
        "task.cancellation.interval",
        DURATION,
        timedelta(seconds=30),
        _ignored("cancellation_interval"),
        "no effect: a task is asked once",
    ),
    known(
        "slot.request.timeout",
        DURATION,
        timedelta(minutes=1),
        _setting("slot_request_timeout"),
        "how long a start waits for the cluster's slots",
    ),
    known(
        "slot.idle.timeout",
        DURATION,
        timedelta(seconds=50),
        _setting("slot_idle_timeout"),
        "how long a session keeps slots that a job has left for the next one; 0: not at all",
    ),
    *PLACEMENT,
    *ADAPTIVE,
    *FILES,
    known(
        "strom.host",
        _HOSTS,
        None,
        _attribute("host"),
        "`local` or `ray`, unless the program says; else `ray` in a program that was handed to a "
        "cluster (`strom run`, `ray job submit -- python job.py`, an upload), and `local` in any "
        "other",
    ),
    known("strom.attached", BOOLEAN, None, _setting("attached"), "`JobConfig.attached`"),
    known("strom.wait", BOOLEAN, True, _setting("wait"), "`JobConfig.wait`"),
    known("strom.batch-size", INTEGER, 16384, _setting("batch_size"), "records in a batch"),
    known(
        "strom.column-pruning",
        BOOLEAN,
        True,
        _setting("column_pruning"),
        "whether sources that can leave out the columns that nobody reads",
    ),
    known(
        "strom.local-combining",
        BOOLEAN,
        True,
        _setting("local_combining"),
        "whether windows and running aggregates combine ahead of the exchange",
    ),
    known(
        "strom.compile-functions",
        BOOLEAN,
        True,
        _setting("compile_functions"),
        "whether functions of `map`, `filter`, `key_by` run on columns where that is the same",
    ),
    known(
        "strom.metrics-interval",
        DURATION,
        millis(500),
        _setting("metrics_interval"),
        "between two reports of a task",
    ),
    *REPORTER_OPTIONS,
    known(
        "strom.metrics.ray-interval",
        DURATION,
        timedelta(seconds=5),
        _set_ray_interval,
        "between two reports to Ray's own metrics; 0: none",
    ),
    known(
        "metrics.latency.interval",
        DURATION,
        timedelta(0),
        _set_latency_interval,
        "between two latency markers of a source; 0: none",
    ),
    known(
        "strom.metrics.hot-keys",
        INTEGER,
        8,
        _set_hot_keys,
        "keys that are named of each keyed exchange, at most: those that most records have; 0: "
        "none",
    ),
    *COMMITS,
    *RECORD,
    *AUTOSCALER,
    *LOGGING,
    *TRACES,
    known("strom.slot.cpus", FLOAT, 1.0, _setting("slot_cpus"), "logical CPUs of a slot, on Ray"),
    *RAY_OPTIONS,
    *EXCHANGE_OPTIONS,
)

BY_KEY: Final = {key: one for one in KNOWN for key in (one.option.key, *one.option.old_keys)}
"""Under their keys and old keys."""

MAPS: Final = tuple(one.option.key for one in KNOWN if one.option.type is MAP)
"""Keys below which every key is an entry."""
