"""What `strom run` tells a program by its environment: where its jobs run, and with what."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..api.configuration.loading import PREFIX, key_of_variable
from ..api.configuration.submitted import names_of
from ..api.jobs.host import SUBMITTED_BY
from ..core.errors import ConfigurationError


@dataclass(frozen=True)
class RunOptions:
    """`runtime_env`: JSON, or a file of it. `env_vars`: as NAME=VALUE."""

    detached: bool = False
    address: str | None = None
    restore_from: str | None = None
    wheels: Sequence[str] = ()
    working_dir: str | None = None
    pip: Sequence[str] = ()
    env_vars: Sequence[str] = ()
    runtime_env: str | None = None

    @property
    def changes_processes(self) -> bool:
        """Whether it says with what the program and its jobs run."""
        named = self.working_dir, self.runtime_env
        return any((*named, *self.wheels, *self.pip, *self.env_vars))

    def environment(self, current: Mapping[str, str]) -> dict[str, str]:
        """`current` with all of it. ConfigurationError."""
        found = dict(current)
        found[SUBMITTED_BY] = "`strom run`"
        options: dict[str, str] = {}
        if self.detached:
            options = {"STROM__ATTACHED": "false", "STROM__WAIT": "false"}
        if self.restore_from is not None:
            options["EXECUTION__STATE_RECOVERY__PATH"] = self.restore_from
        files = self._files()
        if files:
            before = found.get("PYTHONPATH")
            found["PYTHONPATH"] = os.pathsep.join([*files, *([before] if before else [])])
            sent = found.get("STROM_CONF__PYTHON__FILES")
            options["PYTHON__FILES"] = ",".join([*([sent] if sent else []), *reversed(files)])
        runtime_env = self._runtime_env()
        if runtime_env:
            options["STROM__RAY__RUNTIME_ENV"] = json.dumps(runtime_env)
            found |= runtime_env.get("env_vars", {})
        named = {f"{PREFIX}{key}": value for key, value in options.items()}
        found |= named | names_of(map(key_of_variable, named))
        if self.address is not None:
            found["RAY_ADDRESS"] = self.address
        return found

    def _files(self) -> list[str]:
        """What the program and its jobs import from, the first first."""
        files = []
        for wheel in self.wheels:
            if not Path(wheel).is_file() or Path(wheel).suffix not in (".whl", ".zip"):
                raise ConfigurationError(f"--wheel: '{wheel}' is no wheel (.whl) or zip")
            files.append(str(Path(wheel).absolute()))
        if self.working_dir is not None:
            if not Path(self.working_dir).is_dir():
                raise ConfigurationError(f"--working-dir: there is no folder '{self.working_dir}'")
            files.insert(0, str(Path(self.working_dir).absolute()))
        for file in files:
            if "," in file or "#" in file:
                raise ConfigurationError(f"'{file}' has a comma or # in its name: rename it")
        return files

    def _runtime_env(self) -> dict[str, Any]:
        found = {} if self.runtime_env is None else _read(self.runtime_env)
        if self.pip:
            before = found.get("pip") or []
            known = dict(before) if isinstance(before, dict) else {"packages": list(before)}
            found["pip"] = {**known, "packages": [*known.get("packages", ()), *self.pip]}
        variables = dict(found.get("env_vars") or {})
        for one in self.env_vars:
            name, equals, value = one.partition("=")
            if not name or not equals:
                raise ConfigurationError(f"--env-var: '{one}' is not NAME=VALUE")
            variables[name] = value
        if variables:
            found["env_vars"] = variables
        return found


def _read(said: str) -> dict[str, Any]:
    """A JSON object, or the one in a file."""
    text = said
    if not said.lstrip().startswith("{"):
        try:
            text = Path(said).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--runtime-env: {said} cannot be read: {error}") from None
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--runtime-env: {said[:200]} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"--runtime-env: {said[:200]} is no JSON object")
    return found
