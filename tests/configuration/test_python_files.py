"""`add_python_file`: what a program's functions import, brought to where they run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from strom import Configuration, ConfigurationError, StreamExecutionEnvironment
from strom.engine.hosts.shipped_code import importable, pack, unpack

make = StreamExecutionEnvironment.get_execution_environment


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A module, a folder with a package and data, and an archive."""
    module = tmp_path / "one" / "strom_test_module.py"
    package = tmp_path / "two" / "strom_test_package"
    package.mkdir(parents=True)
    module.parent.mkdir()
    module.write_text("def plus(n):\n    return n + 1\n")
    (package / "__init__.py").write_text("from pathlib import Path\n")
    (package / "data.txt").write_text("7")
    (package / "seven.py").write_text(
        "from pathlib import Path\nSEVEN = int(Path(__file__).with_name('data.txt').read_text())\n"
    )
    archive = tmp_path / "three.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("strom_test_zipped.py", "ZIPPED = 100\n")
    return {"module": module, "folder": package.parent, "archive": archive}


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def use_all(n: int) -> int:
    from strom_test_module import plus  # type: ignore[import-not-found]
    from strom_test_package.seven import SEVEN  # type: ignore[import-not-found]
    from strom_test_zipped import ZIPPED  # type: ignore[import-not-found]

    return int(plus(n) + SEVEN + ZIPPED)


def test_functions_import_them_on_the_local_host(files: dict[str, Path]) -> None:
    env = make()
    for path in files.values():
        env.add_python_file(str(path))
    assert env.from_collection([1, 2]).map(use_all).execute_and_collect(limit=2) == [109, 110]


def versions(folder: Path, name: str) -> list[str]:
    made = []
    for version in (1, 2):
        file = folder / f"v{version}" / f"{name}.py"
        file.parent.mkdir()
        file.write_text(f"VERSION = {version}\n")
        made.append(str(file))
    return made


def version_of(path: str, function: Any) -> list[int]:
    env = make()
    env.add_python_file(path)
    return env.from_collection([0]).map(function).execute_and_collect(limit=1)


def ask_for_it(n: int) -> int:
    from strom_test_versioned import VERSION  # type: ignore[import-not-found]

    return int(VERSION)


def test_the_file_of_the_latest_job_comes_first(tmp_path: Path) -> None:
    first, second = versions(tmp_path, "strom_test_versioned")
    for path in (first, second, first):
        assert version_of(path, abs) == [0]
        assert sys.path[0] == str(Path(path).parent)
    assert sys.path.count(str(Path(first).parent)) == 1
    assert version_of(second, ask_for_it) == [2]
    assert version_of(second, ask_for_it) == [2], "it is this job's as well"


def test_a_module_that_was_imported_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """The job would silently run the other one."""
    first, second = versions(tmp_path, "strom_test_twofold")

    def ask(n: int) -> int:
        from strom_test_twofold import VERSION  # type: ignore[import-not-found]

        return int(VERSION)

    assert version_of(first, ask) == [1]
    message = rf"module 'strom_test_twofold' of {second} has been imported from {first} in this"
    with pytest.raises(ConfigurationError, match=message):
        version_of(second, ask)
    with pytest.raises(ConfigurationError, match="'strom_test_twofold'"):
        version_of(str(Path(second).parent), ask)
    archive = tmp_path / "second.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(second, "strom_test_twofold.py")
        made.writestr("strom_test_other/inner.py", "")
    with pytest.raises(ConfigurationError, match=r"of .*second\.zip has been imported"):
        version_of(str(archive), ask)
    assert version_of(str(Path(first).parent), ask) == [1]
    del sys.modules["strom_test_twofold"]
    assert version_of(str(archive), ask) == [2]
    assert version_of(str(archive), ask) == [2]


def test_they_come_by_configuration(files: dict[str, Path]) -> None:
    values = {"python.files": f"{files['module']},{files['archive']}"}
    env = make(Configuration.from_dict(values))
    env.add_python_file(str(files["folder"]))
    assert env.get_job_config().python_files == tuple(
        str(files[name]) for name in ("module", "archive", "folder")
    )


def test_another_process_has_what_was_packed(files: dict[str, Path], tmp_path: Path) -> None:
    program = (
        "import pickle, sys, tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        f"sys.path += [{str(Path(__file__).parent)!r}, *{sys.path!r}]\n"
        "from strom.engine.hosts.shipped_code import pack, unpack\n"
        "unpack(pickle.load(sys.stdin.buffer))\n"
        "from strom_test_module import plus\n"
        "from strom_test_package.seven import SEVEN\n"
        "from strom_test_zipped import ZIPPED\n"
        "print(plus(1) + SEVEN + ZIPPED)\n"
    )
    import pickle

    packed = pickle.dumps(pack(str(path) for path in files.values()))
    for path in files.values():
        assert Path(importable(str(path))).exists()
    for _ in range(2):  # the second finds what the first unpacked
        done = subprocess.run(
            [sys.executable, "-c", program], input=packed, capture_output=True, check=True
        )
        assert done.stdout == b"109\n"
    (unpacked,) = tmp_path.glob("strom-code-*")
    assert len(list(unpacked.iterdir())) == 3
    assert unpacked.stat().st_mode & 0o077 == 0


def test_the_same_content_is_the_same_archive(files: dict[str, Path]) -> None:
    first, again = (pack([str(files["folder"])])[0] for _ in range(2))
    assert first.digest == again.digest
    (files["folder"] / "more.py").write_text("")
    assert pack([str(files["folder"])])[0].digest != first.digest


def test_what_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no /nowhere/x\.py"):
        make().add_python_file("/nowhere/x.py")
    with pytest.raises(ConfigurationError, match=r"option 'python\.files': add_python_file: there"):
        make(Configuration.from_dict({"python.files": "/nowhere/x.py"}))
    with pytest.raises(ConfigurationError, match="cannot be sent to the tasks"):
        pack(["/nowhere/x.py"])


def test_a_folder_of_somebody_else_is_not_used(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"strom-code-{os.getuid()}").symlink_to(tmp_path / "one")
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        unpack(pack([str(files["module"])]))
