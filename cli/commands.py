"""How every command begins and ends, from its words to its exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from . import answers
from .streams import UnwritableError, note, take_any_text, writing


class Commands(TyperGroup):
    """The group of all commands. Wrong use of one is told as any other error is; what is still to
    be written when one ends is written, or else that is told."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Ends in SystemExit."""
        take_any_text()
        as_json = _asks_for_json(sys.argv[1:] if args is None else args)
        code: Any = answers.FINE
        try:
            try:
                # Commands tell of errors themselves: what comes out is of help that typer writes.
                with answers.answering(as_json), writing():
                    code = super().main(
                        args, prog_name, complete_var, False, windows_expand_args, **extra
                    )
            except typer.Exit as ended:
                code = ended.exit_code
            with writing(flush=True):
                pass
        except UnwritableError as error:
            if error.unread:
                sys.exit(answers.UNREAD)
            note(f"strom: {error}")
            sys.exit(answers.BROKEN)
        sys.exit(code)


def _asks_for_json(words: Sequence[str]) -> bool:
    """As far as words tell that cannot be understood. What stands behind `--` is a program's."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own
