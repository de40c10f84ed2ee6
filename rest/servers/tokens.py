"""Who may read, and who may operate: two tokens, in a file that nobody else reads, or given."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ...core.errors import ConfigurationError

Role = Literal["read", "operate"]
"""operate: also what changes jobs."""

READ_VARIABLE: Final = "STROM_REST_READ_TOKEN"
OPERATE_VARIABLE: Final = "STROM_REST_OPERATE_TOKEN"

SHORTEST: Final = 16
"""Characters of a token."""


@dataclass(frozen=True)
class Tokens:
    """ConfigurationError for tokens that are short, equal, or cannot stand in a header."""

    read: str = field(repr=False)
    operate: str = field(repr=False)

    def __post_init__(self) -> None:
        for token in (self.read, self.operate):
            if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
                raise ConfigurationError(
                    f"a token of the REST API must be {SHORTEST} or more printable characters"
                )
        if self.read == self.operate:
            raise ConfigurationError("the tokens to read and to operate must not be the same")

    @classmethod
    def fresh(cls) -> Tokens:
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32))

    def role_of(self, given: str) -> Role | None:
        """None: it is none of them. How long this takes says nothing of the tokens."""
        said = given.encode("utf-8", "surrogateescape")
        operates = hmac.compare_digest(said, self.operate.encode())
        reads = hmac.compare_digest(said, self.read.encode())
        return "operate" if operates else "read" if reads else None


def tokens_of_environment(environment: Mapping[str, str] = os.environ) -> Tokens | None:
    """Those in the environment. ConfigurationError if there is one of them only."""
    found = [environment.get(name, "") for name in (READ_VARIABLE, OPERATE_VARIABLE)]
    if not any(found):
        return None
    if not all(found):
        raise ConfigurationError(f"set both {READ_VARIABLE} and {OPERATE_VARIABLE}, or neither")
    return Tokens(*found)


def tokens_in(path: Path) -> Tokens:
    """Those in the file; of a file that is not there, new ones, which are written to it.
    ConfigurationError if others than its owner can read it, or it holds something else."""
    try:
        return _write(path, Tokens.fresh())
    except FileExistsError:
        return _read(path)


def keep_tokens(path: Path, tokens: Tokens) -> None:
    """Write these to the file, in place of any others."""
    path.unlink(missing_ok=True)
    _write(path, tokens)


def _write(path: Path, tokens: Tokens) -> Tokens:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        json.dump({"read": tokens.read, "operate": tokens.operate}, file)
        file.write("\n")
    return tokens


def _read(path: Path) -> Tokens:
    with open(path) as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise ConfigurationError(
                f"others can read the tokens in {path}: chmod 600, or remove it for new ones"
            )
        text = file.read(10_000)
    try:
        found = json.loads(text)
        return Tokens(str(found["read"]), str(found["operate"]))
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f'{path} holds no tokens, which look like {{"read": "...", "operate": "..."}}: '
            "remove it for new ones"
        ) from None
