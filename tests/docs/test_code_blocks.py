"""Every Python block of the documentation runs, in order, one program per file and mark.

    ```python           runs always
    ```python ray       part of the file's Ray program, which runs under the marker `ray`
    ```python spark     the same with `spark`, or `kafka`
    ```python postgres  with a server in libpq's environment, which is new for each file
    ```text output      what the Python block before it must print

A failure's traceback names the document and its line.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
import strom
from markdown_blocks import BadBlock, Block, blocks_of

ROOT = Path(strom.__file__).parent
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
DOCUMENTS = [p for p in (ROOT / name for name in TOP) if p.exists()]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))


def run(program: ModuleType, blocks: Sequence[Block]) -> None:
    """Run the blocks in the program; AssertionError naming file and line of the one that fails."""
    for block in blocks:
        source = "\n" * (block.line - 1) + block.text
        printed = StringIO()
        try:
            with redirect_stdout(printed):
                exec(compile(source, str(block.path), "exec"), program.__dict__)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{_place(error, block)}: {error!r}") from error
        if block.output is not None and printed.getvalue().rstrip() != block.output.rstrip():
            raise AssertionError(
                f"{block.where}: printed\n{printed.getvalue()}\ndocumented is\n{block.output}"
            )


def _place(error: BaseException, block: Block) -> str:
    """File and line of the documentation that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(block.path)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return f"{block.path.name}:{lines[-1] if lines else block.line}"


def programs() -> Iterator[object]:
    """(document, tag) for each that has Python blocks, under the tag's marker."""
    for path in DOCUMENTS:
        tags = {block.tag for block in blocks_of(path) if block.language == "python"}
        for tag in sorted(tags):
            marks = [getattr(pytest.mark, tag), pytest.mark.timeout(900)] if tag else []
            name = f"{path.name}-{tag}" if tag else path.name
            yield pytest.param(path, tag, marks=marks, id=name)


@pytest.mark.parametrize(("path", "tag"), list(programs()))
def test_the_code_runs(
    path: Path, tag: str, program: ModuleType, request: pytest.FixtureRequest
) -> None:
    if tag == "postgres":
        request.getfixturevalue("postgres")
    run(program, [b for b in blocks_of(path) if b.language == "python" and b.tag == tag])


def test_the_documents_are_found() -> None:
    names = {path.name for path in DOCUMENTS}
    pages = {
        "guide.md",
        "types.md",
        "state.md",
        "windows.md",
        "joins.md",
        "tables.md",
        "connectors.md",
        "checkpoints.md",
    }
    assert {"README.md"} | pages <= names
    for path in DOCUMENTS:
        blocks_of(path)


# --- the test itself ---------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_a_failure_names_file_and_line(program: ModuleType, tmp_path: Path) -> None:
    path = written(tmp_path, "Text\n\n```python\nx = 1\n```\n\n```python\ny = x\n1 / 0\n```\n")
    with pytest.raises(AssertionError, match=r"^page\.md:9: ZeroDivisionError"):
        run(program, blocks_of(path))


def test_bad_syntax_names_file_and_line(program: ModuleType, tmp_path: Path) -> None:
    path = written(tmp_path, "```python\nx = 1\nx = = 2\n```\n")
    with pytest.raises(AssertionError, match=r"^page\.md:3: SyntaxError"):
        run(program, blocks_of(path))


def test_the_output_is_compared(program: ModuleType, tmp_path: Path) -> None:
    text = "```python\nprint(1 + 1)\n```\n\n```text output\n{}\n```\n"
    run(program, [blocks_of(written(tmp_path, text.format(2)))[0]])
    with pytest.raises(AssertionError, match=r"page\.md:2: printed\n2"):
        run(program, [blocks_of(written(tmp_path, text.format(3)))[0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```py\nx = 1\n```\n", r"page\.md:2: unknown language 'py'"),
        ("```python norun\nx = 1\n```\n", "may be marked ray or "),
        ("```text\nimport strom\n```\n", "not marked as such"),
        ("```python\nx = 1\n", "never closed"),
        ("```python\nx = 1\n```python\n", "opens inside the one of line 2"),
        ("```text output\n1\n```\n", "no Python block before it"),
    ],
)
def test_no_block_is_passed_over(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadBlock, match=message):
        blocks_of(written(tmp_path, text))
