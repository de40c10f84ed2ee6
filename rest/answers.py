"""What actors answer, in time, and in the words of catalogs if they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from ..core.errors import ConfigurationError, GraphError, StromError
from .catalog import NoSuchJob, Unavailable

ANSWER_S: Final = 5.0
"""How long a dispatcher or coordinator may take to answer."""


def answer(call: Any, whose: str) -> Any:
    """NoSuchJob, GraphError, Unavailable."""
    try:
        return ray.get(call, timeout=ANSWER_S)
    except GetTimeoutError:
        raise Unavailable(f"{whose} does not answer within {ANSWER_S:g} s: ask again") from None
    except (ActorDiedError, ActorUnavailableError) as error:
        raise Unavailable(f"{whose} cannot be reached now: ask again ({_line(error)})") from None
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ConfigurationError):
            raise NoSuchJob(str(cause)) from None
        if isinstance(cause, GraphError):
            raise cause from None
        if isinstance(cause, StromError):
            raise Unavailable(str(cause)) from None
        raise


def _line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__
