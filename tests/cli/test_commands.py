"""All commands: what each has, and how they fail where there is nothing to ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray
from named_actors import NamedActors
from strom.cli.main import app
from strom.cluster import dispatcher_client, session_client
from strom.engine.hosts import ray_connect
from strom.rest.servers import session_server
from typer.main import get_command
from typer.testing import CliRunner

OWN_HELP = {"bench"}
"""What stands behind it is told by somebody else: tests/cli/test_programs.py."""

OF_JOBS = [
    ("info", "nix"),
    ("plan", "nix"),
    ("top", "nix"),
    ("logs", "nix"),
    ("checkpoints", "nix"),
    ("savepoint", "nix", "somewhere"),
    ("stop", "nix"),
    ("cancel", "nix"),
    ("rescale", "nix", "2"),
    ("autoscale", "nix"),
]
OF_CLUSTERS = [("list",), ("dashboard",), ("cluster", "status"), ("cluster", "stop")]


def walked(group: Any = None, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """(words, command) for each."""
    group = get_command(app) if group is None else group
    found = []
    for word, command in group.commands.items():
        deeper = hasattr(command, "commands")
        found += walked(command, (*words, word)) if deeper else [((*words, word), command)]
    return found


def asked(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    done = CliRunner().invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def refused(*words: str) -> str:
    """Why the command says no: in one sentence, on stderr or as JSON, with exit code 2."""
    code, said, error = asked(*words)
    assert (code, said, error.count("\n")) == (2, "", 1), (said, error)
    code, said, _ = asked(*words, "--json")
    assert code == 2
    why: str = json.loads(said)["error"]
    assert error == f"strom: {why}\n"
    return why


@pytest.mark.parametrize("words", [w for w, _ in walked() if w[0] not in OWN_HELP], ids=" ".join)
def test_each_has_help_and_json(words: tuple[str, ...]) -> None:
    code, said, _ = asked(*words, "--help")
    assert code == 0
    assert "--json" in said
    (command,) = [one for known, one in walked() if known == words]
    assert command.help
    assert all(one.help for one in command.params)


@pytest.mark.parametrize("words", OF_JOBS + OF_CLUSTERS, ids=" ".join)
def test_without_a_cluster(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert "no Ray cluster is named" in refused(*words)
    nobody = "127.0.0.1:1"
    assert f"no Ray cluster is at {nobody}" in refused(*words, "--address", nobody)
    assert not ray.is_initialized()


@pytest.fixture
def nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without dispatcher and jobs."""
    NamedActors(monkeypatch)
    for module in (ray_connect, session_client, dispatcher_client):
        monkeypatch.setattr(module, "join_ray", lambda *args, **options: None)
    monkeypatch.setattr(session_server, "about", lambda: None)


@pytest.mark.usefixtures("nothing_there")
@pytest.mark.parametrize("words", OF_JOBS, ids=" ".join)
def test_without_such_a_job(words: tuple[str, ...]) -> None:
    assert "no job 'nix'" in refused(*words)


@pytest.mark.usefixtures("nothing_there")
def test_without_a_dispatcher() -> None:
    assert "no dispatcher: `strom cluster start`" in refused("cluster", "status")
    assert "no dispatcher" in refused("cluster", "stop")
    assert "`strom cluster start`" in refused("dashboard")
    assert asked("list", "--json") == (0, "[]\n", "")
    assert asked("list")[0] == 0


def test_every_command_that_asks_a_cluster_is_looked_at() -> None:
    asking = {w for w, command in walked() if any(one.name == "address" for one in command.params)}
    others = {("run",), ("doctor",), ("cluster", "start")}
    looked = {words[:2] if words[0] == "cluster" else words[:1] for words in OF_JOBS + OF_CLUSTERS}
    assert asking - others == looked


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rescale", "abc", "0"), "'PARALLELISM'"),
        (("list", "--ended", "-1"), "'--ended'"),
        (("info",), "Missing argument 'job'"),
        (("top", "x", "--interval", "-1"), "'--interval'"),
        (("nonsense",), "No such command 'nonsense'"),
        (("cluster", "nonsense"), "No such command 'nonsense'"),
        (("list", "--no\x1bnsense"), "No such option"),
        (("run",), "Missing argument 'program'"),
    ],
)
def test_wrong_use(words: tuple[str, ...], why: str) -> None:
    found = refused(*words)
    assert why.casefold() in found.casefold()
    assert " --help`)" in found
    assert found.isprintable()


def test_whose_json_it_is() -> None:
    code, said, error = asked("plan", "--format", "nix", "--", "--json")
    assert (code, said, error[:6]) == (2, "", "strom:")


@pytest.mark.parametrize("words", [(), ("cluster",), ("state",)])
def test_a_group_alone_says_what_it_has(words: tuple[str, ...]) -> None:
    code, said, error = asked(*words)
    assert (code, error) == (2, "")
    assert "Usage" in said
