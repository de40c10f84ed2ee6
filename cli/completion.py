"""Completion in zsh from the first Tab on.

zsh loads what `--install-completion` has written when it is first asked for it, and takes what that
says for the answer: typer's script registers its function then, and answers nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

REGISTER: Final = "compdef %(complete_func)s %(prog_name)s\n"

ANSWER_OR_REGISTER: Final = """if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
else
  compdef %(complete_func)s %(prog_name)s
fi
"""


def answer_the_first_tab() -> None:
    """Of the scripts that typer shows and installs from now on. A typer that keeps them elsewhere
    keeps them as they are."""
    with suppress(ImportError, AttributeError, KeyError):
        from typer import _completion_shared

        scripts = _completion_shared._completion_scripts
        scripts["zsh"] = scripts["zsh"].replace(f"\n{REGISTER}", f"\n{ANSWER_OR_REGISTER}")
