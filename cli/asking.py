"""Who is asked about the jobs of a cluster: with a dispatcher or without, the same questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..cluster.account import Account
    from ..rest.catalogs.session_jobs import SessionJobs


def account(address: str | None) -> Account:
    """Which jobs there are. ResourceError if there is no cluster."""
    from ..cluster.account import account
    from ..engine.hosts.ray_connect import join_ray

    join_ray(address, log_to_driver=False)
    return account()


def catalog(address: str | None) -> SessionJobs:
    """The same with all that is known of each, as the REST API serves it: a `JobCatalog`."""
    from ..engine.hosts.ray_connect import join_ray
    from ..rest.catalogs.session_jobs import jobs_there

    join_ray(address, log_to_driver=False)
    return jobs_there()
