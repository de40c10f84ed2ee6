"""How checks are run: none takes more than its time, and none takes the others along."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from strom.core.errors import ConfigurationError
from strom.diagnosis.findings import OK, PROBLEM, Check, Examined, Finding, examined
from strom.diagnosis.probing import ProbeError, ask


def one(check: Check) -> Examined:
    (found,) = examined([check])
    return found


def test_a_check_that_crashes_is_a_problem_and_not_the_end() -> None:
    def crash() -> Finding:
        raise ZeroDivisionError("of nothing")

    def leave() -> Finding:
        raise SystemExit(3)

    fine = Check("fine", lambda: Finding(OK, "well"))
    found = list(examined([Check("crash", crash), Check("leave", leave), fine]))
    assert [(f.name, f.status) for f in found] == [
        ("crash", PROBLEM),
        ("leave", PROBLEM),
        ("fine", OK),
    ]
    assert "ZeroDivisionError: of nothing" in found[0].found


def test_what_strom_refuses_is_told_in_its_own_words() -> None:
    def refuse() -> Finding:
        raise ConfigurationError("say which")

    assert one(Check("refuse", refuse)).found == "say which"


def test_a_check_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def hang() -> Finding:
        release.wait()
        return Finding(OK, "too late")

    found = one(Check("hang", hang, limit_s=0.05))
    release.set()
    assert found.status == PROBLEM
    assert found.found == "no answer within 0.05 s"


def python_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Probes run this instead of Python."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_probe_answers() -> None:
    assert ask("load", {"module": "json"}, 60) == {}


def test_a_probe_that_fails_says_why() -> None:
    with pytest.raises(ProbeError, match="No module named 'there_is_none'"):
        ask("load", {"module": "there_is_none"}, 60)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("kill -ILL $$", f"ended by {signal.SIGILL.name}"),
        ("echo a library is missing >&2; exit 127", "a library is missing"),
        ("exit 7", "ended with exit code 7"),
    ],
)
def test_a_probe_that_dies_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, said: str
) -> None:
    python_that(tmp_path, monkeypatch, does)
    with pytest.raises(ProbeError, match=said):
        ask("kernels", None, 60)


def test_a_probe_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its pipe stays open, and whoever reads it waits."""
    python_that(tmp_path, monkeypatch, "sleep 1000 & sleep 1000")
    with pytest.raises(ProbeError, match=r"no answer within 0\.2 s"):
        ask("kernels", None, 0.2)


def test_what_a_probe_is_asked_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    python_that(tmp_path, monkeypatch, f'echo "$*" > {asked}; cat >> {asked}; echo 1')
    assert ask("storage", "s3://bucket?token=hush", 60) == 1
    line, question = asked.read_text().split("\n", 1)
    assert line == "-P -m strom.diagnosis.probes storage 65"
    assert "hush" in question


def test_a_probe_does_not_outlive_its_time() -> None:
    """Nobody kills it where the doctor was killed: here it waits for a question."""
    command = [sys.executable, "-P", "-m", "strom.diagnosis.probes", "load", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as probe:
        assert probe.wait(60) == -signal.SIGALRM
