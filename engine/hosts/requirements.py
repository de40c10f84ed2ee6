"""Packages that a job's functions need: installed for its processes on Ray, looked for on the local
host.

On Ray a virtual environment of the job's own comes from Ray's runtime environments: pip installs
into it what the requirements file says, once per node and set of packages. The local host runs
functions in the program's own process, where nothing can be installed for one job alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ...core.errors import ConfigurationError
from ...core.job_files import Requirements

_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_OPTION_BEHIND: Final = re.compile(r"\s--?[A-Za-z].*$")
_PIP_OPTIONS: Final = ("--disable-pip-version-check", "--no-cache-dir", "--no-input")


def lines_of(file: str) -> list[str]:
    """The lines of a requirements file and of those that it includes, without comments.
    ConfigurationError if it cannot be read, or names what other machines lack."""
    return list(_lines(Path(file), ()))


def _lines(file: Path, above: tuple[Path, ...]) -> Iterator[str]:
    if file in above:
        raise ConfigurationError(f"requirements file {file} includes itself")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"requirements file {file} cannot be read: {error}") from None
    for line in text.replace("\\\n", " ").splitlines():
        said = _COMMENT.sub("", line).strip()
        option, _, value = said.replace("=", " ", 1).partition(" ")
        if option in ("-r", "--requirement"):
            yield from _lines(file.parent / value.strip(), (*above, file))
        elif said.startswith(("-c", "--constraint", "-e", "--editable")) or _is_local(said):
            raise ConfigurationError(
                f"requirements file {file}: '{said}' is a file of this machine, which others lack: "
                "write a version, or build a wheel and put it into requirements_cache_dir"
            )
        elif said:
            yield said


def _is_local(line: str) -> bool:
    return line.startswith((".", "/", "file:")) or " @ file:" in line


def check_installed(requirements: Requirements) -> None:
    """ConfigurationError names what of it this process lacks."""
    problems = [
        problem
        for line in lines_of(requirements.file)
        if not line.startswith("-") and (problem := _problem(line, requirements.file)) is not None
    ]
    if problems:
        raise ConfigurationError(
            f"{requirements.file}: {'; '.join(problems)}. On the local host functions run in the "
            f"program's own process: run `pip install -r {requirements.file}` before, or run on "
            "Ray, where they are installed for the job"
        )


def _problem(line: str, file: str) -> str | None:
    required = _parsed(_OPTION_BEHIND.sub("", line), file)
    if required.marker is not None and not required.marker.evaluate():
        return None
    try:
        found = metadata.version(required.name)
    except metadata.PackageNotFoundError:
        return f"{required.name} is not installed"
    if required.specifier.contains(found, prereleases=True):
        return None
    return f"{required.name} {found} is installed, not {required.specifier}"


def _parsed(line: str, file: str) -> Requirement:
    """A requirement, also one that is only the URL of a wheel."""
    try:
        if "://" in line and " @ " not in line:
            name, version, *_ = parse_wheel_filename(unquote(urlsplit(line).path).split("/")[-1])
            return Requirement(f"{name}=={version}")
        return Requirement(line)
    except (InvalidRequirement, InvalidWheelFilename) as error:
        raise ConfigurationError(
            f"requirements file {file}: '{line}' is no requirement: {error}"
        ) from None


def runtime_env(
    requirements: Requirements | None,
    current: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """What Ray is asked for to start a process of the job; None: nothing. `current`: the program's
    own runtime environment, which counts for the job, too, whoever starts it; `given`: what is
    added to that. ConfigurationError if there are packages by other means than pip."""
    given = given or {}
    found = {**current, **given}
    if current.get("env_vars") and given.get("env_vars"):
        found["env_vars"] = {**current["env_vars"], **given["env_vars"]}
    packages = [_pip(one.get("pip")) for one in (current, given)]
    if requirements is not None:
        packages.append(_pip_of(requirements, packages))
    packages = [one for one in packages if one.get("packages")]
    if packages:
        for other in ("conda", "uv"):
            if found.get(other) and (requirements is not None or given.get("pip")):
                what = "--pip" if requirements is None else "set_python_requirements"
                file = "" if requirements is None else f" {requirements.file}"
                raise ConfigurationError(
                    f"{what}: this program's runtime_env has packages by {other}, which Ray does "
                    f"not mix with pip: add those of{file or ' the job'} there"
                )
        options: dict[str, Any] = {}
        for one in packages:
            options |= one
        lines = [line for one in packages for line in one["packages"]]
        found["pip"] = {**options, "packages": list(dict.fromkeys(lines))}
    return {name: value for name, value in found.items() if value} or None


def _pip(said: Any) -> dict[str, Any]:
    """In the form that has room for all."""
    if not said:
        return {}
    return dict(said) if isinstance(said, Mapping) else {"packages": list(said)}


def _pip_of(requirements: Requirements, inherited: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    lines = lines_of(requirements.file)
    if not any(not line.startswith("-") for line in lines):
        return {}
    before = [one.get("pip_install_options") for one in inherited]
    options = list(next(filter(None, reversed(before)), _PIP_OPTIONS))
    if requirements.cache_dir is not None:
        options += ["--no-index", "--find-links", requirements.cache_dir]
        # Ray knows an environment by its lines: others in the folder make another environment.
        lines.append(f"# packages {_digest(Path(requirements.cache_dir))}")
    return {"packages": lines, "pip_install_options": options}


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    seen = [(str(f.relative_to(folder)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return blake2b(repr(seen).encode(), digest_size=8).hexdigest()


def not_installed(requirements: Requirements | None, error: Exception) -> Exception | None:
    """What an error of Ray's means for a job with these requirements; None: nothing. (By its name:
    the local host does without Ray.)"""
    if requirements is None or type(error).__name__ != "RuntimeEnvSetupError":
        return None
    return ConfigurationError(why_not_installed(requirements, str(error)))


def why_not_installed(requirements: Requirements, account: str) -> str:
    """Out of Ray's account of an environment that could not be made."""
    lines = [line.strip() for line in account.splitlines()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    why = " ".join(errors or lines[-3:])[:1000]
    folder = requirements.cache_dir
    where = "" if folder is None else f" from {folder}, which all nodes must reach"
    return f"the packages of {requirements.file} could not be installed{where}: {why}"
