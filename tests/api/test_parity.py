"""PyFlink's public names are ours, or `docs/porting.md` says what is different and why."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import strom
from parity_kit import (
    ABSENT,
    DIFFERENT,
    OTHERWISE,
    SAME,
    Name,
    documented,
    found,
    optional_parameters,
    pyflink_names,
)
from strom import BasicType

FOLDER = Path(__file__).parent
OPTIONAL = optional_parameters((FOLDER / "pyflink_optional.txt").read_text())
NAMES = list(pyflink_names((FOLDER / "pyflink_api.txt").read_text(), OPTIONAL))
ROWS = documented(Path(strom.__file__).parent / "docs" / "porting.md")


def test_each_name_is_what_the_page_says() -> None:
    untrue, counts = [], Counter()
    for name in NAMES:
        said, reason = ROWS.get(str(name)) or ROWS.get(name.owner) or ("nothing", "")
        really = found(name)
        counts[said] += 1
        if (SAME if said == OTHERWISE else said) != really:
            untrue.append(f"{name.module}: {name} is {really}, the page says {said}")
        elif said != SAME and not reason:
            untrue.append(f"{name.module}: {name} is {said} for no reason")
    print(dict(counts))
    assert not untrue, "\n".join(untrue)


def test_the_page_names_nothing_else() -> None:
    known = {str(name) for name in NAMES}
    assert [row for row in ROWS if row not in known] == []


def test_what_is_compared() -> None:
    """The comparison itself can tell names apart."""
    by_name = {str(name): name for name in NAMES}
    assert len(NAMES) > 800
    assert found(by_name["ValueState.update"]) == SAME
    assert found(by_name["ConfigOptions"].__class__("pyflink.common", "No", None, None)) == ABSENT
    fewer = by_name["DataStream.map"].__class__(
        "pyflink.datastream.data_stream", "DataStream", "map", ("func", "kind")
    )
    assert found(fewer) == DIFFERENT


def test_what_pyflink_lets_one_leave_out_must_be_optional_here() -> None:
    module, owner = "pyflink.datastream.data_stream", "DataStream"
    needed = Name(module, owner, "map", ("func", "output_type"))
    assert found(needed) == SAME
    assert found(replace(needed, optional=frozenset({"func"}))) == DIFFERENT
    assert OPTIONAL[module, "DataStream.map"] == {"output_type"}
    known = {(name.module, str(name)) for name in NAMES}
    assert set(OPTIONAL) <= known


def test_each_name_that_is_there_is_in_a_test() -> None:
    """Or in an example, or in a document's code, which run as tests."""
    root = Path(strom.__file__).parent
    files = [file for name in ("tests", "examples") for file in (root / name).rglob("*.py")]
    texts = [file.read_text() for file in files]
    for page in [*(root / "docs").glob("*.md"), root / "README.md"]:
        texts += re.findall(r"^```python.*?^```", page.read_text(), re.DOTALL | re.MULTILINE)
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    words |= {f"{one.name}_TYPE_INFO" for one in BasicType}  # all of them in test_types
    there = [name for name in NAMES if found(name) != ABSENT]
    assert len(there) > 800
    named = {
        str(one): one.member if one.member not in (None, "__init__") else one.owner for one in there
    }
    assert [name for name, word in named.items() if word not in words] == []
