"""What setup.cfg says of the package is what lies in the folders."""

from __future__ import annotations

import configparser
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import strom
from strom.core.native import library

ROOT = Path(strom.__file__).parent

BESIDE = {"tests", "examples", "docs", "scripts", "build", "dist", "out", "deploy"}
"""Folders that are not in the package."""


def setup() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found


def packages() -> set[str]:
    return set(setup()["options"]["packages"].split())


def tracked() -> list[Path]:
    """Files of the checkout, as git has them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.split("\0") if name]


def package_of(path: Path) -> str:
    return ".".join(["strom", *path.parent.parts])


def test_every_folder_with_modules_is_a_package() -> None:
    inside = [path for path in tracked() if path.parts[0] not in BESIDE]
    found = {package_of(path) for path in inside if path.name == "__init__.py"}
    assert found == packages()
    assert {package_of(path) for path in inside if path.suffix == ".py"} <= found


def test_what_is_no_module_is_package_data_or_the_projects_own() -> None:
    data = setup()["options.package_data"]
    for path in tracked():
        package = package_of(path)
        if path.parts[0] in BESIDE or path.suffix == ".py" or package not in packages():
            continue
        patterns = data.get(package, "").replace(",", " ").split()
        theirs = path.parent == Path() and path.name != "py.typed"
        assert theirs or any(fnmatch(path.name, one) for one in patterns), f"{path} is not packaged"


@pytest.mark.parametrize(
    ("machine", "flags", "found"),
    [
        ("x86_64", library.LEVELS["x86-64-v3"], ["x86-64-v3", "x86-64"]),
        ("x86_64", library.LEVELS["x86-64-v3"].replace(" avx2", ""), ["x86-64"]),
        ("x86_64", "", ["x86-64"]),
        ("aarch64", "fp asimd", ["generic"]),
    ],
)
def test_a_processor_gets_nothing_that_it_cannot_run(
    machine: str, flags: str, found: list[str]
) -> None:
    assert library.levels(machine, flags) == found


def test_what_a_wheel_brings_comes_behind_what_was_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose paths tell where they were looked for."""
    tried: list[Path] = []

    def absent(path: Path) -> None:
        tried.append(path)
        raise FileNotFoundError(path)

    native = tmp_path / "native"
    (native / library.SHIPPED).mkdir(parents=True)
    monkeypatch.setattr(library, "folders", lambda: [tmp_path / "own"])
    monkeypatch.setattr(library, "__file__", str(native / "library.py"))
    monkeypatch.setattr(library, "digest", lambda: "0" * 16)
    monkeypatch.setattr(library, "levels", lambda: ["x86-64-v3", "x86-64"])
    monkeypatch.setattr(library, "load_from", absent)
    assert library.find() is None
    assert [path.parent.name for path in tried] == ["own", "shipped", "shipped"]
    assert [path.name.split("-0000")[0] for path in tried[1:]] == [
        "strom_kernels-x86-64-v3",
        "strom_kernels-x86-64",
    ]
