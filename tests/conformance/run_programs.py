"""Runs the programs of a folder and writes what they give, as text: `{name: {output: [repr]}}`.

PyFlink runs this, and so do the tests, so it imports neither at the top. As a script:

    python run_programs.py MODULE FOLDER OUT [NAME ...]

MODULE is `pyflink` or `strom`, and what the programs in FOLDER import. A program is a public
function of one parameter `env`, which returns a stream, a dict of streams, or a list of values.
Its name is that of its file and its own. Results come in the order in which they are promised,
unless the file's `ANY_ORDER` has the program's name, or the file has no `ANY_ORDER`; `IN_THREADS`
and `WAITING` have names, too (see Program).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

Outputs = dict[str, list[str]]


def load(path: Path, prefix: str) -> ModuleType:
    """The module in the file; what it defines travels to tasks by value."""
    import cloudpickle

    spec = importlib.util.spec_from_file_location(f"{prefix}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


@dataclass(frozen=True)
class Program:
    """A function in a file. in_order: its results' order is promised. in_threads: PyFlink runs it
    in the JVM's threads, not in processes beside it. waits: its results take time, of a clock that
    tests may set."""

    name: str
    path: Path
    prefix: str
    in_order: bool
    in_threads: bool
    waits: bool

    def make(self, env: Any) -> Any:
        """What the function gives, of a module of its own: PyFlink leaves things in declared types
        that it cannot pickle when they are used again."""
        return getattr(load(self.path, self.prefix), self.name.partition(".")[2])(env)

    def outputs(self, environment: Callable[[], Any]) -> Outputs:
        """What each output gives, in a job of its own."""
        made = self.make(environment())
        if isinstance(made, list):
            return {"": [repr(one) for one in made]}
        found = {}
        for name in list(made) if isinstance(made, dict) else [""]:
            made = self.make(environment())
            stream = made[name] if isinstance(made, dict) else made
            with stream.execute_and_collect() as results:
                texts = [repr(one) for one in results]
            found[name] = texts if self.in_order else sorted(texts)
        return found


def programs(folder: Path, prefix: str) -> Iterator[Program]:
    """Those of all files in the folder."""
    for path in sorted(folder.glob("*.py")):
        module = load(path, prefix)
        free = getattr(module, "ANY_ORDER", None)
        threads, waiting = getattr(module, "IN_THREADS", ()), getattr(module, "WAITING", ())
        for name, value in vars(module).items():
            mine = inspect.isfunction(value) and value.__module__ == module.__name__
            if not mine or name.startswith("_"):
                continue
            if list(inspect.signature(value).parameters) == ["env"]:
                in_order = free is not None and name not in free
                how = in_order, name in threads, name in waiting
                yield Program(f"{path.stem}.{name}", path, prefix, *how)


def main(module: str, folder: str, out: str, *names: str) -> None:
    common = importlib.import_module(f"{module}.common")
    streaming = importlib.import_module(f"{module}.datastream")

    def environment(in_threads: bool) -> Any:
        configuration = common.Configuration()
        if in_threads and module == "pyflink":
            configuration.set_string("python.execution-mode", "thread")
        made = streaming.StreamExecutionEnvironment.get_execution_environment(configuration)
        return made.set_parallelism(1)

    found: dict[str, Any] = {}
    for program in programs(Path(folder), module):
        if names and not program.name.startswith(names):
            continue
        try:
            found[program.name] = program.outputs(partial(environment, program.in_threads))
        except Exception:
            found[program.name] = {"error": traceback.format_exc().splitlines()}
        failed = "FAILED" if "error" in found[program.name] else "done"
        print(program.name, failed, file=sys.stderr, flush=True)
        Path(out).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
