"""Runs a measurement in a process of its own, set up as a task's is: memory that one leaves behind
is not the next one's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from strom.engine.hosts import lean


class Broken(RuntimeError):
    """The process ended before it said anything; the message has its last words."""


def apart(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """What `function` of a module returns for these arguments; all of it goes through JSON.
    environment: variables of the process besides those of this one."""
    asked = json.dumps([function.__module__, function.__name__, list(arguments)])
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.apart", asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        raise Broken(f"ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    module, name, arguments = json.loads(sys.argv[1])
    lean.keep_freed_memory()
    lean.settle()
    print(json.dumps(getattr(import_module(module), name)(*arguments)))


if __name__ == "__main__":
    main()
