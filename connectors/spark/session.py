"""Spark for a program: the gateway actor by name, started by whoever needs it first.

The actor is named within the program's Ray namespace and belongs to the process that started it:
when that process ends, however it ends, Ray ends the actor, and Spark's JVMs end with it. A
program that wants one Spark from beginning to end starts it in its driver (`with spark_session():
...`); otherwise the first source's enumerator starts it inside the job's coordinator.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

from ...core.errors import ConfigurationError, StromError
from .options import SparkOptions, require_ray, require_spark

GATEWAY_NAME: Final = "strom-spark-gateway"

_MAX_CONCURRENT_CALLS: Final = 16

_at_exit = threading.Event()


def get_or_start_gateway(options: SparkOptions | None = None) -> Any:
    """Handle of the program's gateway actor. Returns at once: Spark starts with the first call to
    it.

    `options` are used if the gateway is not there yet; a call that carries others is refused with
    ConfigurationError. Any process of the program may call this. Raises ConfigurationError when
    pyspark or RayDP is missing or this process is not connected to Ray.
    """
    require_spark()
    require_ray("a Spark connector")
    import ray

    from .gateway import SparkGateway

    return (
        ray.remote(SparkGateway)
        .options(
            name=GATEWAY_NAME,
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=_MAX_CONCURRENT_CALLS,
        )
        .remote(options or SparkOptions())
    )


def start_spark(options: SparkOptions | None = None) -> Any:
    """Start Spark now (several seconds) and stop it when this process exits. Returns the
    gateway."""
    import ray

    gateway = get_or_start_gateway(options)
    if not _at_exit.is_set():
        _at_exit.set()
        atexit.register(stop_spark)
    try:
        ray.get(gateway.start.remote(options))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, StromError):
            raise error.cause from None
        raise ConfigurationError(f"Spark did not start: {error}") from None
    return gateway


def stop_spark(timeout_s: float = 20.0) -> None:
    """Stop the program's Spark and its gateway, if there is one. Calls in progress fail."""
    import ray

    if not ray.is_initialized():
        return
    try:
        gateway = ray.get_actor(GATEWAY_NAME)
    except ValueError:
        return
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(gateway.stop.remote(), timeout=timeout_s)
    ray.kill(gateway, no_restart=True)


@contextlib.contextmanager
def spark_session(options: SparkOptions | None = None) -> Iterator[Any]:
    """Spark for the time of a `with` block; yields the gateway actor."""
    gateway = start_spark(options)
    try:
        yield gateway
    finally:
        stop_spark()
