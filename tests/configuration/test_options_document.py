"""docs/configuration.md has a row for every option, and none for others.

.venv/bin/python tests/configuration/test_options_document.py     prints the rows anew
"""

from __future__ import annotations

from pathlib import Path

import strom
from strom.api.configuration.known import KNOWN
from strom.api.configuration.registry import Known

DOCUMENT = Path(strom.__file__).parent / "docs" / "configuration.md"


def row(known: Known) -> str:
    option = known.option
    old = "".join(f"<br>`{key}`" for key in option.old_keys)
    default = "" if option.default is None else f"`{option.type.write(option.default)}`"
    return f"| `{option.key}`{old} | {option.type.name} | {default} | {option.description} |"


def test_the_document_has_a_row_for_every_option() -> None:
    section = DOCUMENT.read_text().partition("## All options")[2].partition("\n## ")[0]
    written = [line for line in section.splitlines() if line.startswith("| `")]
    expected = [row(known) for known in KNOWN]
    assert [line for line in expected if line not in written] == [], "rows that are missing"
    assert [line for line in written if line not in expected] == [], "rows that are not true"
    assert written == expected, "rows out of order"


def test_keys_are_there_once() -> None:
    keys = [key for known in KNOWN for key in (known.option.key, *known.option.old_keys)]
    assert sorted(keys) == sorted(set(keys))


if __name__ == "__main__":
    print("\n".join(row(known) for known in KNOWN))
