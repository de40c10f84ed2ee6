"""Records what PyFlink gives for the programs of `tests/conformance/programs` and of
`examples/pyflink`, in `tests/conformance/results.json`, which tests hold strom's results against.

    STROM_PYFLINK=/path/to/python .venv/bin/python scripts/record_pyflink.py [NAME ...]

STROM_PYFLINK is the interpreter of an environment with `apache-flink`. With names (or beginnings of
names) only these are recorded anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from strom.benchmarks.ported import NoPyFlink, port, run_pyflink

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT / "tests" / "conformance"
RESULTS = CONFORMANCE / "results.json"
RUNNER = CONFORMANCE / "run_programs.py"
FOLDERS = (CONFORMANCE / "programs", ROOT / "examples" / "pyflink")


def main(names: list[str]) -> None:
    found = json.loads(RESULTS.read_text("utf-8")) if names else {}
    for programs in FOLDERS:
        with tempfile.TemporaryDirectory(prefix="strom-pyflink-") as name:
            folder = Path(name, programs.name)
            folder.mkdir()
            port(sorted(programs.glob("*.py")), folder)
            out = Path(name, "results.json")
            arguments = [str(RUNNER), "pyflink", str(folder), str(out), *names]
            done = run_pyflink(arguments, Path(name))
            print(done.stderr[-20_000:], file=sys.stderr)
            if done.returncode:
                raise SystemExit(f"PyFlink ended with {done.returncode}")
            if out.exists():
                found |= json.loads(out.read_text("utf-8"))
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", "utf-8")
    failed = [name for name, one in found.items() if "error" in one]
    if failed:
        raise SystemExit(f"PyFlink does not run: {', '.join(failed)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NoPyFlink as error:
        raise SystemExit(str(error)) from error
