"""Writes the golden checkpoints of the present version: `python tests/golden/make.py`.

Once per format version, when it is new: a set that is committed is never written again, for it
shows that what an older version wrote is still read. What restored operators hold and emit is
written beside it, at the parallelism it was written with.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "kits"))

import golden_states as golden
from golden_case import WRITTEN_BY
from strom.checkpoint.manifest import FORMAT_VERSION
from strom.checkpoint.storage import open_storage


def _pack(source: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(source).as_posix())
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())


def main() -> None:
    folder = golden.GOLDEN / f"v{FORMAT_VERSION}"
    if folder.exists():
        raise SystemExit(f"{folder} is there already: a set is written once")
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="strom-golden-") as scratch:
        golden.write(open_storage(scratch, "golden"))
        _pack(Path(scratch), folder / "checkpoint.zip")
    with tempfile.TemporaryDirectory(prefix="strom-golden-") as scratch:
        storage, manifest = golden.checkpoint_of(folder, Path(scratch))
        expected = {
            case: golden.observed(storage, manifest, case, WRITTEN_BY)
            for case in golden.cases(manifest)
        }
    for name in golden.ENUMERATORS:
        expected[name] = {"gives": golden.splits_left(name, manifest.enumerators[name])}
    text = json.dumps(expected, indent=0, sort_keys=True, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")
    print(f"wrote {len(expected)} cases to {folder}")


if __name__ == "__main__":
    main()
