"""Programs that are uploaded: what is taken, what is refused, and that they run as they should."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from chaos_kit import until
from rest_kit import OPERATE, READ, TOKENS, PlayedJobs, bearer
from starlette.testclient import TestClient
from strom.api.jobs.host import default_host
from strom.rest.programs import runs, uploads
from strom.rest.programs.runs import ProgramRuns, Run, Running
from strom.rest.programs.uploads import Program, Programs
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access


class Played:
    """A run that a test plays."""

    def __init__(self, run: Run, address: str | None) -> None:
        self.id = f"{len(PLAYED):032x}"
        self.run, self.address, self.program = run, address, run.program
        self.began_ms, self.jobs, self.output = 5, ["0123456789abcdef"], "hello"
        self.exit_code: int | None = None
        self.killed = False
        PLAYED.append(self)

    def wait(self, seconds: float) -> None:
        pass

    def kill(self) -> None:
        self.killed = True
        self.exit_code = -9


PLAYED: list[Played] = []


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    PLAYED.clear()
    monkeypatch.setattr(runs, "Running", Played)
    access = Access(TOKENS, upload_limit=20_000)
    kept = Programs(tmp_path / "programs")
    app = make_app(PlayedJobs(), access, kept, ProgramRuns("127.0.0.1:6379"))
    headers = bearer(OPERATE)
    with TestClient(guarded(app), base_url="http://127.0.0.1", headers=headers) as client:
        yield client


def zipped(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return made.getvalue()


def upload(client: TestClient, name: str, content: bytes = b"print(1)") -> Any:
    return client.post("/v1/programs/upload", files={"jarfile": (name, content)})


def test_from_its_upload_to_its_end(client: TestClient, tmp_path: Path) -> None:
    made = upload(client, "job.py").json()
    assert made["status"] == "success"
    (file,) = client.get("/v1/programs").json()["files"]
    assert (file["name"], file["size"], file["id"]) == ("job.py", 8, made["id"])
    path = tmp_path / "programs" / made["id"] / "job.py"
    assert path.read_text() == "print(1)"
    assert path.stat().st_mode & 0o777 == 0o600
    asked = {
        "programArgsList": ["a b"],
        "programArgs": "--n 3",
        "parallelism": 2,
        "savepointPath": "s3://x",
        "allowNonRestoredState": True,
        "restoreMode": "CLAIM",
    }
    ran = client.post(f"/v1/programs/{made['id']}/run", json=asked).json()
    assert (ran["jobid"], ran["status"], ran["exit-code"]) == ("0123456789abcdef", "RUNNING", None)
    (played,) = PLAYED
    assert played.run.command()[1:] == [str(path), "a b", "--n", "3"]
    assert played.run.options == {
        "parallelism.default": "2",
        "execution.state-recovery.path": "s3://x",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    place = f"/v1/programs/{made['id']}"
    assert client.delete(place).status_code == 409
    state = client.get(f"{place}/runs/{ran['request-id']}").json()
    assert (state["output"], state["started"]) == ("hello", 5)
    assert client.delete(f"{place}/runs/{ran['request-id']}").status_code == 200
    assert played.killed
    assert client.get(f"{place}/runs/{ran['request-id']}").json()["status"] == "FAILED"
    assert client.get(f"/v1/programs/{'0' * 32}/runs/{ran['request-id']}").status_code == 404
    assert client.delete(place).status_code == 200
    assert list((tmp_path / "programs").iterdir()) == []
    assert client.post(f"{place}/run").status_code == 404


def test_flinks_paths(client: TestClient) -> None:
    made = client.post("/jars/upload", files={"jarfile": ("job.py", b"")}).json()
    assert client.get("/v1/jars").json()["files"][0]["id"] == made["id"]
    assert client.post(f"/jars/{made['id']}/run").json()["jobid"] == "0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        "../job.py",
        "..\\job.py",
        "/etc/job.py",
        "a/../../job.py",
        ".job.py",
        "job.py\0.txt",
        "job.sh",
        "job",
        ".py",
        "job.py/",
        "C:job.py",
        "-m.py",
        "j" * 200 + ".py",
        "j\u00f6b.py",
        "job.py\n",
    ],
)
def test_names_that_are_no_files(client: TestClient, tmp_path: Path, name: str) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="'
        + name.encode()
        + b'"\r\n\r\nprint(1)\r\n--x--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/v1/programs/upload", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_names_are_what_the_store_says_too(tmp_path: Path) -> None:
    kept = Programs(tmp_path / "programs")
    for name in ("../job.py", "a/job.py", "job.py\n", "", "..", "\0.py"):
        with pytest.raises(uploads.BadProgram):
            kept.add(name, io.BytesIO(b""), 10)
    for wrong in ("..", "../x", "0" * 31, "0" * 32 + "\n"):
        with pytest.raises(uploads.NoSuchProgram):
            kept.get(wrong)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.zip", b"no zip"),
        ("job.zip", zipped(other="1")),
        ("job.whl", b"PK\x03\x04"),
        (
            "job.zip",
            zipped(__main__="1").replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xff"),
        ),
        ("job.py", b"\xff\xfe"),
        ("job.py", b"a\0b"),
    ],
)
def test_content_that_is_none(client: TestClient, name: str, content: bytes) -> None:
    assert upload(client, name, content).status_code == 400
    assert client.get("/v1/programs").json()["files"] == []


def test_a_directory_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Programs(tmp_path / "programs")
    content = zipped(__main__="1", **{f"module{i}": "" for i in range(50)})
    assert kept.add("job.zip", io.BytesIO(content), 1 << 20).size == len(content)
    monkeypatch.setattr(uploads, "MOST_DIRECTORY", 1000)
    monkeypatch.setattr(uploads.zipfile, "ZipFile", None)
    with pytest.raises(uploads.BadProgram, match="lists too many files"):
        kept.add("job.zip", io.BytesIO(content), 1 << 20)
    # What zipfile would believe instead of the end record.
    end = content.rindex(b"PK\x05\x06")
    more = content[:end] + b"PK\x06\x07" + bytes(16) + content[end:]
    with pytest.raises(uploads.BadProgram, match="lists too many files"):
        kept.add("job.zip", io.BytesIO(more), 1 << 20)
    assert len(kept.list()) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "x"}'])
def test_one_that_is_damaged_is_none_and_hides_no_other(tmp_path: Path, text: str) -> None:
    programs = Programs(tmp_path)
    made = programs.add("a.py", io.BytesIO(b"print(1)"), 100)
    damaged = "0" * 32
    (tmp_path / f"{damaged}.json").write_text(text)
    assert programs.list() == [made]
    programs.add("b.py", io.BytesIO(b"print(2)"), 100)
    with pytest.raises(uploads.NoSuchProgram):
        programs.get(damaged)


def test_uploads_that_were_broken_off_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    whole = Programs(folder).add("job.py", io.BytesIO(b"1"), 10)
    for name in ("a" * 32, "b" * 32):
        (folder / name).mkdir()
        (folder / name / "job.py").write_text("1")
        (folder / f"{name}.new").write_text("{")
    (folder / "mine").mkdir()
    old = time.time() - 2 * uploads.BROKEN_OFF_S
    for path in folder.iterdir():
        if not path.name.startswith("b"):  # which may be on
            os.utime(path, (old, old))
    assert Programs(folder).list() == [whole]
    left = {path.name for path in folder.iterdir()}
    assert left == {whole.id, f"{whole.id}.json", "b" * 32, f"{'b' * 32}.new", "mine"}


def test_too_large_and_too_many(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert upload(client, "job.py", b"x" * 30_000).status_code == 413
    monkeypatch.setattr(uploads, "MOST_PROGRAMS", 1)
    assert upload(client, "job.py").status_code == 200
    assert upload(client, "job.py").status_code == 409
    monkeypatch.setattr(runs, "MOST_RUNNING", 1)
    (file,) = client.get("/v1/programs").json()["files"]
    assert client.post(f"/v1/programs/{file['id']}/run").status_code == 200
    assert client.post(f"/v1/programs/{file['id']}/run").status_code == 503


def test_what_cannot_be_run(client: TestClient) -> None:
    job = upload(client, "job.py").json()["id"]
    wheel = upload(client, "job.whl", zipped(job="1")).json()["id"]
    whole = upload(client, "job.zip", zipped(__main__="1", other="1")).json()["id"]
    for program, body in (
        (job, {"entryClass": "os"}),
        (wheel, {}),
        (whole, {"entryClass": "-c"}),
        (whole, {"entryClass": "a;b"}),
        (job, {"programArgs": "'"}),
        (job, {"programArgsList": ["a\0b"]}),
        (job, {"parallelism": 0}),
        (job, {"jobId": "x"}),
    ):
        answer = client.post(f"/v1/programs/{program}/run", json=body)
        assert answer.status_code == 400, body
    assert PLAYED == []
    assert client.post(f"/v1/programs/{wheel}/run", json={"entryClass": "job"}).status_code == 200
    assert PLAYED[0].run.command()[1:] == ["-m", "job"]


def test_who_may(client: TestClient) -> None:
    reads = bearer(READ)
    answer = client.post("/v1/programs/upload", files={"jarfile": ("a.py", b"")}, headers=reads)
    assert answer.status_code == 403
    assert client.get("/v1/programs", headers=reads).status_code == 200


def test_a_server_that_takes_none() -> None:
    with TestClient(guarded(make_app(PlayedJobs())), base_url="http://127.0.0.1") as client:
        answer = upload(client, "job.py")
        assert answer.status_code == 403
        assert "--rest-programs" in answer.json()["errors"][0]
        assert client.get("/v1/config").json()["features"]["web-submit"] is False


@pytest.mark.parametrize("path", ["/v1/programs/upload", "/jars/upload"])
def test_a_server_that_takes_none_reads_none(path: str) -> None:
    app = guarded(make_app(PlayedJobs()))
    answers: list[Any] = []

    async def unread() -> Any:
        raise AssertionError("the body is read")

    async def answer(message: Any) -> None:
        answers.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(app(scope, unread, answer))
    assert answers[0]["status"] == 403
    assert b"--rest-programs" in answers[1]["body"]


def test_what_a_program_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROM_REST_READ_TOKEN", READ)
    monkeypatch.setenv("RAY_JOB_ID", "01")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    program = Program("0" * 32, "job.zip", 1, 1)
    run = Run(program, tmp_path / "job.zip", options={"parallelism.default": "3"})
    told = run.environment("127.0.0.1:6379")
    assert default_host(told) == ("ray", "it was submitted by the REST API")
    assert told["STROM_CONF__STROM__WAIT"] == "false"
    assert told["STROM_CONF__PARALLELISM__DEFAULT"] == "3"
    assert told["STROM_CONF__PYTHON__FILES"] == str(tmp_path / "job.zip")
    assert told["PYTHONPATH"] == f"{tmp_path / 'job.zip'}:/elsewhere"
    assert (told["RAY_ADDRESS"], told["RAY_AUTH_TOKEN"]) == ("127.0.0.1:6379", "t")
    assert "RAY_JOB_ID" not in told
    assert "STROM_REST_READ_TOKEN" not in told


def test_jobs_are_found_in_what_a_program_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "import os, sys\n"
        "print(\"strom: job 'a b' has the id 0123456789abcdef and outlives this program\")\n"
        "print('x' * 10_000, 'password=hush', sys.argv[1], os.environ['RAY_ADDRESS'])\n"
        "sys.exit(3)\n"
    )
    program = Program("0" * 32, "job.py", 1, 1)
    running = Running(Run(program, path, ["one"]), "here:1")
    running.wait(60)
    assert running.jobs == ["0123456789abcdef"]
    running.jobs.clear()
    running.wait(60)
    assert running.exit_code == 3
    assert running.output.endswith("password=*** one here:1\n")
    assert json.dumps(running.output)
    monkeypatch.setattr(runs, "redacted", None)
    assert running.output.endswith("one here:1\n"), "looked through once"


def test_a_program_that_leaves_a_child(tmp_path: Path) -> None:
    """Through the API, with real processes: the run is over when the program is, and what it has
    left behind is ended by whoever ends the run."""
    app = make_app(PlayedJobs(), None, Programs(tmp_path / "programs"), ProgramRuns(None))
    with TestClient(guarded(app), base_url="http://127.0.0.1") as client:
        text = (
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "print('the child is', child.pid, flush=True)\n"
        )
        made = upload(client, "job.py", text.encode()).json()["id"]
        place = f"/v1/programs/{made}"
        ran = client.post(f"{place}/run").json()
        assert (ran["status"], ran["exit-code"]) == ("FINISHED", 0)
        child = psutil.Process(int(ran["output"].split()[-1]))
        assert child.is_running()
        assert client.delete(f"{place}/runs/{ran['request-id']}").status_code == 200
        until(lambda: gone(child), "the end of the child", 60.0)
        assert client.delete(place).status_code == 200


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # of which nobody hears
    except psutil.NoSuchProcess:
        return True
