"""What strom asks of other packages, and what there is of them: from the packages' metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from .findings import OK, PROBLEM, WARNING, Finding

PACKAGE: Final = "strom"

Installed = Callable[[str], str | None]
"""The version of a package; None: it is not installed."""


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Wanted:
    """What the metadata of strom says: the Python versions, and requirements by extra (`""`: those
    that are always needed), each by its canonical name."""

    python: SpecifierSet
    requirements: Mapping[str, Mapping[str, Requirement]]

    def of(self, extra: str = "") -> Mapping[str, Requirement]:
        return self.requirements.get(extra, {})


def wanted() -> Wanted | None:
    """What the installed strom asks for. None: there is a package `strom` to import, but none that
    was installed."""
    try:
        found = metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    return wanted_by(
        ",".join(found.get_all("Requires-Python") or ()),
        found.get_all("Requires-Dist") or (),
        found.get_all("Provides-Extra") or (),
    )


def wanted_by(python: str, lines: Sequence[str], extras: Sequence[str]) -> Wanted:
    """The same, of the lines of metadata.

    >>> wanted_by(">=3.11", ["a>=2", "b==1 ; extra == 'x'"], ["x"]).of("x")["b"].specifier
    <SpecifierSet('==1')>
    """
    by_extra: dict[str, dict[str, Requirement]] = {extra: {} for extra in ("", *extras)}
    for line in lines:
        one = Requirement(line)
        needing = [e for e in by_extra if one.marker is None or one.marker.evaluate({"extra": e})]
        for extra in [""] if "" in needing else needing:
            by_extra[extra][canonicalize_name(one.name)] = one
    return Wanted(SpecifierSet(python), by_extra)


def judged(requirement: Requirement, version: str | None) -> Finding:
    """Whether a package is there, and of a version that strom was made for."""
    name = requirement.name
    asked = f"{name}{requirement.specifier}"
    advice = f"pip install '{asked}'"
    if version is None:
        return Finding(PROBLEM, f"{name} is not installed", advice)
    try:
        fits = requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return Finding(WARNING, f"{name} has the version '{version}', which says nothing", advice)
    if not fits:
        return Finding(PROBLEM, f"{name} {version}; strom needs {asked}", advice)
    return Finding(OK, version)


def judged_together(
    requirements: Mapping[str, Requirement], version_of: Installed, but: frozenset[str]
) -> Finding:
    """All requirements `but` some, in one finding."""
    rest = {name: one for name, one in requirements.items() if name not in but}
    findings = [judged(one, version_of(one.name)) for one in rest.values()]
    wrong = [one for one in findings if one.status == PROBLEM]
    odd = [one for one in findings if one.status == WARNING]
    if not wrong and not odd:
        return Finding(OK, f"{len(findings)} packages, all of versions that strom was made for")
    found = "; ".join(one.found for one in [*wrong, *odd])
    names = " ".join(one.advice.removeprefix("pip install ") for one in [*wrong, *odd])
    return Finding(PROBLEM if wrong else WARNING, found, f"pip install {names}")
