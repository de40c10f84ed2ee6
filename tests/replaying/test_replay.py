"""A recording run again: what failed, what is missing, what another program makes of it."""

from __future__ import annotations

import json
import logging
import runpy
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import strom
from replay_kit import Sums, Unlimited, environment, program, record
from strom import AsyncDataStream, AsyncFunction, Configuration, DiscardSink
from strom.checkpoint.recordings import recorded_subtasks
from strom.cli import answers
from strom.cli.main import app
from strom.core.errors import ConfigurationError, CorruptCheckpointError
from strom.testing import replay
from typer.testing import CliRunner


def sums(upto: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for n in range(1, upto + 1):
        found[n % 4] = found.get(n % 4, 0) + n
    return found


def parts_of(path: Path) -> list[Path]:
    return sorted(path.rglob("part-*.arrow"), key=lambda one: int(one.name.split("-")[2]))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job that failed at 3000. Copy it to change it."""
    path = tmp_path_factory.mktemp("recorded")
    record(path, Sums())
    return path


def cut_behind_the_last_records(path: Path) -> Path:
    """Their part; those behind it are gone then."""
    subtask, where = next(recorded_subtasks(str(path)))
    folder = subtask.attempt(0)
    for part in reversed(folder.parts()):
        kinds = folder.read_part(part).column("kind").to_pylist()
        file = Path(where) / "attempt-0" / part.name
        if "objects" in kinds:
            return file
        file.unlink()
    raise AssertionError("no records")


@pytest.fixture
def copy(recording: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recording, tmp_path / "copy"))


def test_fails_at_the_same_record(recording: Path) -> None:
    raised: list[BaseException] = []
    found = replay(str(recording), failed=raised.append)
    assert raised == [found.error]
    assert isinstance(found.error, ValueError)
    assert str(found.error) == "3000 is too much"
    assert found.recorded_failure == "ValueError: 3000 is too much"
    assert found.fault is not None
    assert (found.fault.record, found.fault.key) == (3_000, 0)
    assert str(found.fault) == f"record {found.fault.number:,}, key 0"
    assert found.notes == []


def test_another_program_goes_on(recording: Path) -> None:
    """To the end of what is recorded, from the state that there was."""
    env = environment()
    program(env, Unlimited())
    found = replay(str(recording), "sums", graph=env.get_job_graph())
    found.check()
    last = dict(found.outputs)
    assert any(last == sums(upto) for upto in range(3_000, 4_001)), last
    assert found.records == len(found.outputs)


def test_what_is_torn_is_left_out(copy: Path) -> None:
    records = cut_behind_the_last_records(copy)
    records.write_bytes(records.read_bytes()[:-40])
    found = replay(str(copy))
    assert any("torn" in note for note in found.notes)
    assert found.error is None
    assert found.recorded_failure is not None


def test_a_process_that_is_killed_leaves_what_was_written(copy: Path) -> None:
    """No end, no word of a failure, and a temporary file."""
    records = cut_behind_the_last_records(copy)
    records.rename(records.with_name(f".{records.name}.tmp"))
    next(copy.rglob("failed.json")).unlink()
    found = replay(str(copy))
    assert found.error is None
    assert found.notes == ["the task did not come to write the end of it"], parts_of(copy)


def test_what_is_missing_is_named(copy: Path) -> None:
    subtask, _ = next(recorded_subtasks(str(copy)))
    folder = subtask.attempt(0)
    base = folder.bases()[-1]
    folder.write_part(base, folder.parts()[-1].number + 2, [("closed", 0, 0, None, None)])
    with pytest.raises(CorruptCheckpointError, match=r"parts \[\d+\] are missing"):
        replay(str(copy))


def test_an_altered_part_is_named(copy: Path) -> None:
    subtask, _ = next(recorded_subtasks(str(copy)))
    folder = subtask.attempt(0)
    first = parts_of(copy)[0]
    folder.write_part(0, folder.parts()[-1].number + 1, [("closed", 0, 0, None, None)])
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="torn or altered"):
        replay(str(copy))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"operator": "nix"}, "operator 'nix' is not recorded there: there is sums"),
        ({"subtask": 7}, r"there is no subtask 7, but \[0\]"),
        ({"attempt": 3}, r"there is no attempt 3, but \[0\]"),
    ],
)
def test_what_is_not_there(recording: Path, asked: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        replay(str(recording), **asked)


def test_nothing_is_recorded_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing is recorded there"):
        replay(str(tmp_path / "nowhere"))


def test_a_program_without_the_operator(recording: Path) -> None:
    env = environment()
    env.from_collection([1, 2]).map(str).uid("others").print()
    with pytest.raises(ConfigurationError, match=r"has no operator 'sums'.* 'others'"):
        replay(str(recording), graph=env.get_job_graph())


def test_the_command(recording: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.parquet"
    asked = CliRunner().invoke(
        app, ["replay", str(recording), "--json", "--output", str(output), "--limit", "2"]
    )
    assert asked.exit_code == answers.DIFFERENT, asked.output
    said = json.loads(asked.stdout)
    assert said["error"] == "ValueError: 3000 is too much"
    assert said["fault"]["record"] == 3_000
    assert "process_element" in said["traceback"]
    assert said["results"] == pq.read_table(output).num_rows
    assert len(said["data"]) == min(2, said["results"])


def test_the_command_tries_a_program(recording: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import sys\n"
        "from replay_kit import Sums, Unlimited, environment, program, record\n"
        "assert sys.argv[1:] == ['word'], sys.argv\n"
        "env = environment()\n"
        "program(env, Unlimited())\n"
        "env.execute()\n"
    )
    output = tmp_path / "results.arrow"
    words = ["replay", str(recording), "--program", str(job), "--output", str(output), "word"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("strom.api.jobs.host._instead", [])
        patched.setattr("sys.argv", [])
        patched.setattr("sys.path", __import__("sys").path[:])
        asked = CliRunner().invoke(app, words)
    assert asked.exit_code == answers.FINE, asked.output
    assert "it does not fail here; in the job: ValueError: 3000 is too much" in asked.stdout
    table = pa.ipc.open_file(pa.OSFile(str(output))).read_all()
    assert table.column_names == ["f0", "f1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nothing is recorded there"),
        (["PATH", "--pdb", "--json"], "--pdb"),
        (["PATH", "--output", "results.csv"], "NAME.arrow or NAME.parquet"),
        (["PATH", "more"], "say --program"),
        (["PATH", "--program", "nowhere.py"], "there is no file"),
    ],
)
def test_the_command_refuses(recording: Path, words: list[str], said: str) -> None:
    words = [str(recording) if word == "PATH" else word for word in words]
    asked = CliRunner().invoke(app, ["replay", *words])
    assert asked.exit_code == answers.USAGE
    assert said in asked.output


EXAMPLE = Path(strom.__file__).parent / "examples" / "replay.py"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("strom").level
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
    finally:
        logging.getLogger("strom").setLevel(level)
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    assert "as it must be" in shown


@pytest.mark.parametrize(
    ("operators", "said"),
    [
        (["nix"], "there is no operator 'nix': there are 'sums', 'texts'"),
        ([], "no operator is chosen; there are 'sums', 'texts'"),
        (["numbers"], "operator 'numbers' is a source, which gets no records"),
        (["out"], "operator 'out' is a sink, which would write again"),
        (["later"], "waits for answers from elsewhere"),
    ],
)
def test_what_cannot_be_recorded_is_refused(operators: list[str], said: str) -> None:
    env = environment()
    env.record("nowhere", operators)
    numbers = env.from_collection([1]).uid("numbers")
    sums = numbers.key_by(lambda n: n % 4).process(Unlimited()).uid("sums")
    if operators == ["later"]:
        second = timedelta(seconds=1)
        sums = AsyncDataStream.unordered_wait(sums, Later(), second).uid("later")
    sums.map(str).uid("texts").sink_to(DiscardSink()).uid("out")
    with pytest.raises(ConfigurationError, match=said):
        env.execute()


class Later(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


def test_it_is_configured() -> None:
    env = environment()
    said = {"strom.record.path": "memory://there", "strom.record.operators": "sums;texts"}
    env.configure(Configuration.from_dict({**said, "strom.record.max-size": "2 mb"}))
    record = env.get_job_config().record
    assert (record.path, record.operators) == ("memory://there", ("sums", "texts"))
    assert record.max_bytes == 2 << 20
    env.record("here", "texts")
    assert env.get_job_config().record.operators == ("texts",)
    assert env.get_configuration().to_dict()["strom.record.path"] == str(Path("here").absolute())
    for wrong in ({"path": ""}, {"path": 3}, {"operators": [3]}, {"max_size": "much"}):
        with pytest.raises(ConfigurationError):
            env.record(**{"path": "here", "operators": ["sums"], **wrong})
