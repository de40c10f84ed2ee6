"""`ExecutionConfig`: PyFlink's view of an environment's settings, to change in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from ...core.checks import check_count, check_kind
from ..types.durations import Interval, to_ms, to_timedelta
from .settings import Settings
from .values import read_map


class ExecutionConfig:
    """What `env.get_config()` gives. Some switches of Flink have nothing to switch here, and are
    only given back: closure cleaner, generic types, compression of snapshots,
    markers, the interval of attempts to cancel."""

    PARALLELISM_DEFAULT: Final = -1
    PARALLELISM_UNKNOWN: Final = -2

    def __init__(self, settings: Settings) -> None:
        """Made by the environment."""
        self._settings = settings
        self._ignored = settings.ignored

    # --- what the job does -------------------------------------------------------------------

    def get_parallelism(self) -> int:
        return self._settings.parallelism

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """For operators created from now on that set none of their own. PARALLELISM_DEFAULT goes
        back to what the configuration said, PARALLELISM_UNKNOWN changes nothing."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._settings.parallelism = self._settings.default_parallelism
        elif parallelism != self.PARALLELISM_UNKNOWN:
            check_count("parallelism", parallelism, 1)
            self._settings.parallelism = parallelism
        return self

    def get_max_parallelism(self) -> int:
        return self._settings.max_parallelism

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """The number of key groups of operators that set none of their own."""
        check_count("max_parallelism", max_parallelism, 1, 32768)
        self._settings.max_parallelism = max_parallelism
        return self

    def get_auto_watermark_interval(self) -> int:
        """Milliseconds."""
        return to_ms(self._settings.base.auto_watermark_interval)

    def set_auto_watermark_interval(self, interval: Interval) -> ExecutionConfig:
        self._settings.change(auto_watermark_interval=to_timedelta(interval, "interval"))
        return self

    def get_task_cancellation_timeout(self) -> int:
        """Milliseconds."""
        return to_ms(self._settings.base.cancellation_timeout)

    def set_task_cancellation_timeout(self, timeout: Interval) -> ExecutionConfig:
        """After which a task that is cancelled, and still runs, is let go of, or loses its
        process. There is always a limit."""
        self._settings.change(cancellation_timeout=to_timedelta(timeout, "timeout"))
        return self

    def get_global_job_parameters(self) -> dict[str, Any]:
        return dict(self._settings.base.job_parameters)

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, Any]
    ) -> ExecutionConfig:
        """What functions get from `runtime_context.get_job_parameter`. Values are text, as
        PyFlink's."""
        check_kind("global_job_parameters_dict", global_job_parameters_dict, Mapping)
        self._settings.change(job_parameters=read_map(global_job_parameters_dict))
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        self._settings.auto_uids = True
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Every operator needs a uid from now on: without one the job is refused."""
        self._settings.auto_uids = False
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._settings.auto_uids

    # --- what changes nothing here -----------------------------------------------------------

    def enable_closure_cleaner(self) -> ExecutionConfig:
        return self._ignore(closure_cleaner=True)

    def disable_closure_cleaner(self) -> ExecutionConfig:
        return self._ignore(closure_cleaner=False)

    def is_closure_cleaner_enabled(self) -> bool:
        return self._ignored.closure_cleaner

    def enable_generic_types(self) -> ExecutionConfig:
        return self._ignore(generic_types=True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Values without a declared type are pickled all the same."""
        return self._ignore(generic_types=False)

    def has_generic_types_disabled(self) -> bool:
        return not self._ignored.generic_types

    def enable_object_reuse(self) -> ExecutionConfig:
        """Several readers of a record get one object: none may change it. (Where a record has one
        reader it is never copied, as in Flink it is unless this is enabled.)"""
        self._settings.change(object_reuse=True)
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Each reader gets its own, if it can be changed: so it is unless this is enabled."""
        self._settings.change(object_reuse=False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._settings.base.object_reuse

    def is_use_snapshot_compression(self) -> bool:
        return self._ignored.snapshot_compression

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        check_kind("use_snapshot_compression", use_snapshot_compression, bool)
        return self._ignore(snapshot_compression=use_snapshot_compression)

    def get_latency_tracking_interval(self) -> int:
        """Milliseconds; 0: there are no latency markers."""
        interval = self._settings.base.metrics.latency_interval
        return 0 if interval is None else to_ms(interval)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Milliseconds between two latency markers of a source; 0, or less: none."""
        check_kind("interval", interval, int)
        between = timedelta(milliseconds=interval) if interval > 0 else None
        metrics = replace(self._settings.base.metrics, latency_interval=between)
        self._settings.change(metrics=metrics)
        return self

    def get_task_cancellation_interval(self) -> int:
        """Milliseconds."""
        return to_ms(self._ignored.cancellation_interval)

    def set_task_cancellation_interval(self, interval: Interval) -> ExecutionConfig:
        """A task is asked once."""
        return self._ignore(cancellation_interval=to_timedelta(interval, "interval"))

    def _ignore(self, **values: Any) -> ExecutionConfig:
        for name, value in values.items():
            setattr(self._ignored, name, value)
        return self
