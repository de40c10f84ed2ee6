"""Checks of places for checkpoints: can files be written, listed, read, renamed, deleted?"""

from __future__ import annotations

from typing import Final

from ..checkpoint.secrets import check_no_secrets
from ..core.errors import ConfigurationError
from .findings import OK, PROBLEM, WARNING, Finding
from .probing import Ask, ProbeError

STORAGE_S: Final = 60.0

SLOW_S: Final = 2.0
"""A step with an object of a few bytes that takes longer makes every checkpoint slow."""

ADVICE: Final = {
    "open": "see the URL, that fsspec has the package for it (pip install 'strom[s3]' for S3), and "
    "that the storage can be reached from here",
    "write": "let this user create objects there, and see that there is room",
    "list": "let this user list what is there: restores look for the newest checkpoint",
    "read": "let this user read objects there",
    "rename": "let this user rename or copy objects there; object stores of which strom knows no "
    "atomic put need it",
    "delete": "let this user delete objects there: old checkpoints would stay for ever",
}


def storage(url: str, ask: Ask) -> Finding:
    """Whether checkpoints may lie at the URL, which is not shown."""
    try:
        check_no_secrets(url, "--storage")
    except ConfigurationError as error:
        return Finding(PROBLEM, str(error), "take the credentials out of the URL")
    try:
        answer = ask("storage", url, STORAGE_S)
    except ProbeError as error:
        return Finding(PROBLEM, str(error), ADVICE["open"])
    steps = answer["steps"]
    if answer["step"] is not None:
        found = f"cannot {answer['step']}: {answer['error']}"
        return Finding(PROBLEM, found, ADVICE[answer["step"]])
    told = ", ".join(f"{step} {seconds * 1000:.0f} ms" for step, seconds in steps.items())
    slow = [step for step, seconds in steps.items() if seconds > SLOW_S and step != "open"]
    if slow:
        return Finding(
            WARNING,
            f"slow ({told})",
            "use a storage nearer to the cluster, or see what else uses the way there",
        )
    return Finding(OK, told)
