"""The kernel library: what it takes and refuses, and that it is what runs where it was built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from strom.core.native import Array, boolean, int64, library, void
from strom.core.native.build import install
from strom.core.native.glue import Exported, source
from strom.core.native.types import to_numba
from strom.state.hash_kernels import hash_words

LIBRARY = library.load()


def run(program: str, **environment: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


KERNELS = """
import sys
from strom.state.hash_kernels import hash_words
import numpy as np
out = np.empty(2, dtype=np.uint64)
hash_words(np.array([1, 2], dtype=np.uint64), 0, out)
print(out.tolist(), "numba" in sys.modules)
"""


def test_signatures_are_numbas() -> None:
    from numba import types

    wanted = types.void(types.Array(types.int64, 1, "C", readonly=True), types.boolean)
    assert to_numba(void(Array(int64, 1, "C", readonly=True), boolean)) == wanted
    assert to_numba(int64[::1]) == types.int64[::1]
    with pytest.raises(TypeError, match=r"int64\[::1\]"):
        int64[:]


def test_both_ways_give_the_same() -> None:
    compiled = run(KERNELS, STROM_KERNELS="numba")
    assert compiled.endswith("True")
    if LIBRARY is not None:
        assert run(KERNELS) == compiled.replace("True", "False")


def test_a_changed_kernel_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = library.file_name()
    other = tmp_path / "other_kernels.py"
    other.write_text("x = 1")
    real = library.sources()
    monkeypatch.setattr(library, "PACKAGE", Path("/"))
    monkeypatch.setattr(library, "sources", lambda: [*real, other])
    assert library.file_name() != before


def test_the_library_is_there_wherever_it_can_be_made() -> None:
    """Without a C compiler and Python's headers it cannot: numba runs the kernels then."""
    if LIBRARY is None:
        made = run("from strom.core.native.build import build; print(build())")
        assert made == "None", "run scripts/setup, or python -m strom.core.native.build"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two empty folders instead of the real ones, and nothing that a wheel brought."""
    made = [tmp_path / "package", tmp_path / "user"]
    monkeypatch.setattr(library, "folders", lambda: made)
    monkeypatch.setattr("strom.core.native.build.folders", lambda: made)
    monkeypatch.setattr(library, "shipped", list)
    return made


def whole() -> bytes:
    """A library that can be loaded; where none can be made, bytes that nobody can load."""
    assert LIBRARY is None or LIBRARY.__file__ is not None
    return library.sealed(b"") if LIBRARY is None else Path(LIBRARY.__file__).read_bytes()


@pytest.mark.parametrize("keep", [0, 10, 0.5, -40])
def test_a_damaged_library_is_named_and_not_loaded(
    folders: list[Path], keep: float, caplog: pytest.LogCaptureFixture
) -> None:
    folders[0].mkdir()
    path = folders[0] / library.file_name()
    data = whole()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ImportError, match="damaged"):
        library.load_from(path)
    assert library.find() is None
    assert f"{path} is damaged" in caplog.text
    path.write_bytes(data[:100] + b"!" + data[101:])
    with pytest.raises(ImportError, match="damaged"):
        library.load_from(path)


def test_a_damaged_library_leaves_the_kernels_to_numba(tmp_path: Path) -> None:
    """In a process of its own: a folder of the user's with nothing but rubbish for a library."""
    program = f"""
from pathlib import Path
from strom.core.native import library
library.folders, library.shipped = lambda: [Path({str(tmp_path)!r})], list
(Path({str(tmp_path)!r}) / library.file_name()).write_bytes(b"rubbish")
{KERNELS}"""
    assert run(program) == run(KERNELS, STROM_KERNELS="numba")


def test_a_library_goes_where_it_may_and_where_it_can_be_loaded(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folders[0].write_text("a file where a folder should be, as good as a read-only package")
    placed = install(whole())
    assert str(folders[0]) in capsys.readouterr().err
    assert placed == (None if LIBRARY is None else folders[1] / library.file_name())
    assert (library.find() is None) == (LIBRARY is None)


def test_what_no_folder_can_load_is_left_nowhere(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(library.sealed(b"no shared object")) is None
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert all(str(folder) in capsys.readouterr().err for folder in folders[:1])


def test_only_what_the_same_processor_used_goes(folders: list[Path]) -> None:
    """Machines of two kinds may share the folder."""
    folders[0].mkdir()
    other = folders[0] / library.file_name().replace(library.NAME, f"{library.NAME}-other")
    stale = folders[0] / library.file_name("0" * 16)
    for file in (other, stale):
        file.write_bytes(b"")
    if install(whole()) is not None:
        assert not stale.exists()
    assert other.exists()


def test_without_a_home_there_is_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert len(library.folders()) == 1


def test_kernels_refuse_what_does_not_fit() -> None:
    """From the library or compiled by numba: never a wrong read."""
    words, out = np.zeros(3, dtype=np.uint64), np.zeros(3, dtype=np.uint64)
    hash_words(words, 0, out)
    refusals = (TypeError, ValueError, BufferError)
    wrong: list[tuple[object, ...]] = [
        (words, 0),
        (words.astype(np.int64), 0, out),
        (words.reshape(1, 3), 0, out),
        (words[::2], 0, out),
        (words, "seed", out),
    ]
    for arguments in wrong:
        with pytest.raises(refusals):
            hash_words(*arguments)
    out.flags.writeable = False
    with pytest.raises(refusals):
        hash_words(words, 0, out)


def test_readonly_input_is_taken() -> None:
    words, out = np.arange(3, dtype=np.uint64), np.zeros(3, dtype=np.uint64)
    words.flags.writeable = False
    hash_words(words, np.uint64(2**63), out)
    assert len(set(out.tolist())) == 3


def test_generated_source_names_every_kernel() -> None:
    signature = void(int64[::1], boolean)
    text = source("some_module", [Exported("a__b", (signature,), ("symbol_of_b",))])
    assert '"lw1?00"' in text
    assert "symbol_of_b" in text
    assert "PyInit_some_module" in text
