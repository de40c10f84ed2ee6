"""What a coordinator has decided that neither tasks (`accounts`) nor checkpoints tell the one that
comes after it, should it die: what the job is by now, and how often it has failed.

The host writes it down at each KeepGraph and before each attempt (`hosts.job_record`), with graphs
in the form of their parallelisms; the next job master gets it with graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from .restart import Failed

Form = TypeVar("Form")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Handover(Generic[Form]):
    """`now`: what the job is; None: what it was planned as. `former`: what it goes back to if it
    does not come up as that, or `returns` from; None: it has come up (`rescales`). `wanted`: what
    it is to be when there is room for it; None: what it is. `failed`: as of `make_policy`.
    `restarts`, `rescales`: so many there have been; of the latter, those that went well.

    >>> Handover({"a": 3}, {"a": 2}).told_as(str)
    Handover(now="{'a': 3}", former="{'a': 2}", wanted=None, returns=False, failed=(), restarts=0, \
rescales=0)
    """

    now: Form | None = None
    former: Form | None = None
    wanted: Form | None = None
    returns: bool = False
    failed: Failed = ()
    restarts: int = 0
    rescales: int = 0

    def told_as(self, form: Callable[[Form], Other]) -> Handover[Other]:
        """The same with graphs in another form."""
        graphs = (self.now, self.former, self.wanted)
        now, former, wanted = (None if one is None else form(one) for one in graphs)
        return replace(cast("Handover[Any]", self), now=now, former=former, wanted=wanted)
