"""Which Ray a program uses: the one it was told, the one that is there, or one of its own.

Ray itself tries for many minutes to reach a cluster that is gone, and a cluster that died leaves
its address behind. So somebody must listen at an address before Ray hears of it.
"""

from __future__ import annotations

import importlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

from ...core.errors import ResourceError

NAMESPACE: Final = "strom"
"""Ray namespace of all named actors."""

ANSWER_S: Final = 3.0
"""How long a cluster's machine may take to answer at all."""

OF_CLUSTER: Final = frozenset({"raylet", "gcs_server", "autoscaler"})
"""Whose name Ray gives to what it tells all programs."""

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Named(NamedTuple):
    """The address of a cluster, and who says so."""

    address: str
    source: str
    remedy: str
    """What to do if nobody is there."""


def connect_to_ray(
    num_cpus: int | None = None, address: str | None = None, log_to_driver: bool = True
) -> None:
    """Connect this process to Ray, unless it is already.

    To the cluster at `address`, else at RAY_ADDRESS, else the one that `ray start` left running on
    this machine; else to a new one of `num_cpus` logical CPUs (default: the machine's), private to
    this process: it ends with it, listens for it alone, and has an access token of its own.
    `log_to_driver`: show what tasks print. ResourceError within seconds if nobody listens at the
    address, or if Ray cannot join what does.

    From then on SIGTERM raises SystemExit in the main thread, so that attached jobs are cancelled;
    a handler that the program has set for it stays. What Ray says of the cluster goes to stderr.
    """
    import ray

    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    common: dict[str, Any] = {
        "namespace": NAMESPACE,
        "logging_level": "error",
        "log_to_driver": log_to_driver,
    }
    named = named_cluster(address)
    if named is not None:
        require_listener(named)
        # A left address is not given as "auto": that would also join any program's private cluster.
        given = None if named.source == LEFT else named.address
        with own_sigterm():
            _join(ray, named, {"address": given, **common})
        notices_to_stderr()
        return
    # Ray turns token authentication on for a cluster of its own; with no token given it would
    # leave one in the user's home, which changes what later `ray start`s do.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with own_sigterm():
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **common)
    notices_to_stderr()
    _own.append(ray.get_runtime_context().gcs_address)


def join_ray(address: str | None = None, log_to_driver: bool = True) -> None:
    """As `connect_to_ray`, but to a cluster that is there: ResourceError if none is named."""
    import ray

    if not ray.is_initialized() and named_cluster(address) is None:
        raise ResourceError(
            "no Ray cluster is named, and none that `ray start` left runs on this machine: say "
            "which by an address, or in RAY_ADDRESS"
        )
    connect_to_ray(address=address, log_to_driver=log_to_driver)


_own: list[str] = []
"""The addresses of clusters that were started for this process."""


def on_own_cluster() -> bool:
    """Whether this process, connected to Ray, is so to a cluster of its own."""
    if not _own:  # a client by ray:// does not know its cluster's address
        return False
    import ray

    return ray.get_runtime_context().gcs_address in _own


LEFT: Final = "that `ray start` left on this machine"


def named_cluster(address: str | None) -> Named | None:
    """The cluster to use; None: start one. In the order that Ray looks, too."""
    if address in (None, "auto") and (environment := os.environ.get("RAY_ADDRESS")):
        remedy = "start a cluster there, or set RAY_ADDRESS to another or to nothing"
        return None if environment == "local" else Named(environment, "in RAY_ADDRESS", remedy)
    if address == "local":
        return None
    file = _address_file()
    left = file.read_text().strip() if file.exists() else ""
    if left and address in (None, "auto"):
        remedy = f"remove {file} (`ray stop` does) to do without it, or start one with `ray start`"
        return Named(left, LEFT, remedy)
    if address is None:
        return None
    return Named(address, "given as `address`", "start a cluster there, or give another address")


def _address_file() -> Path:
    """Where `ray start` writes the address of its cluster, and `ray stop` removes it."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(folder, "ray", "ray_current_cluster")


def require_listener(named: Named) -> None:
    """ResourceError unless somebody accepts connections there. What is no host and port (`auto`,
    an address scheme of somebody's own) is left to Ray."""
    scheme, _, rest = named.address.rpartition("://")
    if scheme not in ("", "ray") or ":" not in rest:
        return
    try:
        where = urlsplit(f"//{rest}")
        host, port = where.hostname or "", where.port
    except ValueError as error:
        raise _nobody(named, error) from None
    if port is None:
        return
    failure: OSError | None = None
    for name in _names_of(host):
        try:
            socket.create_connection((name, port), ANSWER_S).close()
            return
        except OSError as error:
            failure = error
    assert failure is not None
    raise _nobody(named, failure)


def _names_of(host: str) -> Iterator[str]:
    """For this machine also the address that Ray takes it by."""
    yield host
    if host in LOOPBACK:
        import ray

        yield ray.util.get_node_ip_address()


def _nobody(named: Named, error: Exception) -> ResourceError:
    return ResourceError(
        f"no Ray cluster is at {named.address}, the address {named.source} ({error}): "
        f"{named.remedy}"
    )


def _join(ray: Any, named: Named, options: dict[str, Any]) -> None:
    try:
        ray.init(**options)
    except ConnectionError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause).strip().splitlines()[-1]
        raise ResourceError(
            f"the Ray cluster at {named.address}, the address {named.source}, could not be "
            f"joined: {reason}"
        ) from None


def notices_to_stderr() -> None:
    """What Ray tells every program of its cluster, as that a process of some job died, it prints to
    stdout, among what the program prints for others to read, such as JSON. From now on that goes to
    stderr; what tasks print stays where they print it."""
    with suppress(ImportError, AttributeError):  # there is no public way (Ray 2.60)
        worker: Any = importlib.import_module("ray._private.worker")
        show = worker.print_to_stdstream
        if not isinstance(show, _Apart):
            worker.print_to_stdstream = _Apart(show)


class _Apart:
    """Shows what `show` would."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show

    def __call__(self, data: Mapping[str, Any], *rest: Any, **more: Any) -> None:
        told = {**data, "is_err": True} if data.get("pid") in OF_CLUSTER else data
        self._show(told, *rest, **more)


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Around `ray.init`, which takes SIGTERM for itself: give it back to the program's own handler,
    or have it end the program as `sys.exit` does, without Ray's account of its stack."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if _of_program(before) else _exit)


def _of_program(handler: Any) -> bool:
    """Whether the program chose this handler, and not Python or an earlier `ray.init`."""
    rays = getattr(handler, "__module__", "").startswith("ray.")
    return handler is not None and handler is not signal.SIG_DFL and not rays


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
