"""Stdout and stderr that are full, closed, or read by nobody: what a real process makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

DRIVER = """
import json, os, sys
from pathlib import Path
from strom.cli import jobs
from strom.cli.main import app
from strom.cluster.records import JobRecord
from strom.core.errors import ConfigurationError

class Account:
    def __init__(self, address):
        if address == "fails":
            raise ConfigurationError("no")
        self.jobs = lambda ended: [
            (JobRecord(f"{i:016}", "caf\\xe9 \\ud800 \\udce9", 1.0, 1, False, 0, 0), "")
            for i in range(ended)
        ]

jobs.account = Account

def full(number):
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)

def unread(number):
    read, write = os.pipe()
    os.dup2(write, number)
    os.close(read)
    os.close(write)

def closed(number):  # as Python has it where a shell closed it
    os.close(number)
    sys.stdout = None

ways = {"full": full, "unread": unread, "closed": closed, "file": lambda number: None}
folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
for at, (number, way, words) in enumerate(cases):
    child = os.fork()
    if child == 0:
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{at}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        ways[way](number)
        app(words)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / f"{at}.code").write_text(str(code))
"""

FULL = "strom: stdout takes no more: No space left on device\n"

CASES = [  # which stream, how it is, words, code, stderr
    (1, "full", ["list", "--json"], 3, FULL),
    (1, "full", ["list", "--json", "--ended", "200"], 3, FULL),
    (1, "full", ["list"], 3, FULL),
    (1, "full", ["list", "--json", "--address", "fails"], 3, FULL),
    (1, "full", ["--help"], 3, FULL),
    (1, "unread", ["list", "--json"], 141, ""),
    (1, "unread", ["list", "--json", "--ended", "200"], 141, ""),
    (1, "unread", ["list"], 141, ""),
    (1, "closed", ["list"], 0, ""),
    (1, "closed", ["list", "--json"], 0, ""),
    (2, "full", ["list", "--address", "fails"], 2, ""),
    (2, "full", ["nonsense"], 2, ""),
    (1, "file", ["list"], 0, ""),
    (1, "file", ["list", "--json"], 0, ""),
]


def test_streams_that_take_nothing(tmp_path: Path) -> None:
    """In a locale that has ASCII only, where stdout takes half of the surrogates as bytes."""
    cases = json.dumps([case[:3] for case in CASES])
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, str(tmp_path), cases],
        env=environment,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for at, (_, way, words, code, error) in enumerate(CASES):
        told = (tmp_path / f"{at}.code").read_text(), (tmp_path / f"{at}.err").read_text()
        assert told == (str(code), error), (way, words)
    *_, table, document = ((tmp_path / f"{at}.out").read_bytes() for at in range(len(CASES)))
    assert rb"caf\xe9 \ud800 \udce9" in table
    assert json.loads(document)[0]["name"] == "caf\xe9 \ud800 \udce9"
