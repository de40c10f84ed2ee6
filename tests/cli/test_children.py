"""Programs beside commands: what reaches them, how they end, and what they leave behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from strom.cli.main import app
from typer.testing import CliRunner

CHILD = """
import signal, sys, time
cleaned = []
def clean(*_):
    time.sleep(0.5)
    cleaned.append(1)
    print("cleaned", flush=True)
signal.signal(signal.SIGINT, clean)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(10 + len(cleaned)))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""

COMMAND = f"""
import fcntl, os, sys, termios
from strom.cli.children import exit_code
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(exit_code([sys.executable, "-c", {CHILD!r}]))
"""


@pytest.mark.parametrize("terminal", [False, True])
def test_a_program_ends_as_it_likes_to(terminal: bool) -> None:
    """Each Ctrl-C reaches it once, from the terminal or from the command; SIGTERM is passed on."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ready\n"
        if terminal:
            os.write(ours, b"\x03")
        else:
            command.send_signal(signal.SIGINT)
        assert command.stdout.readline() == b"cleaned\n"
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 11
        assert command.stdout.read() == b""
    finally:
        command.kill()
        command.wait()
        assert command.stdout is not None
        command.stdout.close()
        os.close(ours)
        os.close(theirs)


LEAVES = """
import os, subprocess, sys
waits = "import time; time.sleep(60); open('waited', 'w')"
child = subprocess.Popen([sys.executable, "-c", waits])
print("strom: job 'x' has the id 0123456789abcdef and", child.pid, file=sys.stderr, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_program_that_leaves_a_child(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Which holds its stderr: the command is over when the program is."""
    program = tmp_path / "program.py"
    program.write_text(LEAVES)
    done = CliRunner().invoke(app, ["run", "--json", "--working-dir", str(tmp_path), "program.py"])
    assert json.loads(done.stdout) == {"jobs": ["0123456789abcdef"], "exit_code": 137}
    assert done.exit_code == 137
    assert not (tmp_path / "waited").exists()
    child = psutil.Process(int(capfd.readouterr().err.split()[-1]))
    child.kill()
