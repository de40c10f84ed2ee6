"""A session as a new user meets it, from an empty folder: `make tour`.

A wheel is built and installed into a new environment; `strom doctor`; a Ray cluster and `strom
cluster start`; a job submitted by `strom run`, one by `ray job submit` and one by an upload to the
REST API; `strom list`, `top`, `savepoint`, `rescale`; the dispatcher killed, and `list` again; a
picture of each page of the dashboard, taken in Chromium. Fails at the first thing that is not as it
must be. Its cluster has ports of its own, and is ended with it. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent

JOB = """
import sys
from datetime import timedelta

import numpy as np
import pyarrow as pa
from strom import DiscardSink, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def numbers(start, count):
    number = np.arange(start, start + count)
    return pa.RecordBatch.from_arrays([pa.array(number % 1000), pa.array(number)], schema=SCHEMA)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(timedelta(seconds=1), storage={storage!r})
source = DataGenSource(numbers, rate=20_000, schema=SCHEMA)
sums = env.from_source(source, source_name="numbers").key_by("k").sum("v").name("sums").uid("sums")
sums.sink_to(DiscardSink()).name("nowhere")
env.execute({name!r})
"""

PAGES = ("", "/checkpoints", "/exceptions", "/logs", "/configuration")
WAIT_S = 180.0


class Tour:
    """`bin`: where the installed commands are; `folder`: where all of it happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        self.environment["HOME"] = str(folder)

    def install(self) -> None:
        dist = self.folder / "dist"
        _run([str(ROOT / "scripts" / "wheel"), "--into", str(dist)])
        (wheel,) = dist.glob("strom-*.whl")
        _run([sys.executable, "-m", "venv", str(self.folder / "venv")])
        pip = [str(self.bin / "python"), "-m", "pip", "install", "-q"]
        _run([*pip, "--disable-pip-version-check", f"{wheel}[profile]"])
        print(f"installed {wheel.name}", flush=True)

    def strom(self, *words: str) -> Any:
        """What the command says, as JSON."""
        said = self.run("strom", *words, "--json")
        try:
            return json.loads(said)
        except ValueError:
            raise SystemExit(f"strom {' '.join(words)} --json: no JSON:\n{said}") from None

    def run(self, program: str, *words: str) -> str:
        print(f"$ {program} {' '.join(words)}", flush=True)
        done = subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{program} {' '.join(words)}: {done.returncode}\n{done.stdout}")
        return done.stdout

    def submits(self, code: str) -> bool:
        words = ["job", "submit", "--no-wait", "--address", self.submissions]
        done = subprocess.run(
            [str(self.bin / "ray"), *words, "--", str(self.bin / "python"), "-c", code],
            env=self.environment,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    def program(self, name: str) -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(JOB.format(storage=str(self.folder / "state"), name=name))
        return file

    def running(self) -> dict[str, str]:
        """Ids of jobs that run, by name."""
        return {one["name"]: one["job_id"] for one in self.strom("list") if _runs(one)}

    @contextmanager
    def cluster(self) -> Iterator[None]:
        """A Ray cluster of one node, which ends with this."""
        port, dashboard = _free(), _free()
        words = ["start", "--head", "--block", "--num-cpus", "8", "--port", str(port)]
        words += ["--dashboard-port", str(dashboard), "--node-ip-address", "127.0.0.1"]
        words += ["--temp-dir", tempfile.mkdtemp(prefix="ray-", dir="/tmp")]
        with open(self.folder / "ray.log", "w") as log:
            head = subprocess.Popen(
                [str(self.bin / "ray"), *words],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.environment["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        self.submissions = f"http://127.0.0.1:{dashboard}"
        try:
            _until(lambda: _answers(f"{self.submissions}/api/version"), "the Ray cluster")
            # Of the agent that starts submitted programs, which is there some time later.
            _until(lambda: self.submits("print('hello')"), "a Ray that takes programs")
            yield
        finally:
            of_it = psutil.Process(head.pid).children(recursive=True)
            os.killpg(head.pid, signal.SIGTERM)
            for one in psutil.wait_procs(of_it, 20)[1]:
                one.kill()
            head.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", help="a folder for those of the dashboard; else they go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strom-tour-", ignore_cleanup_errors=True) as folder:
        tour = Tour(Path(folder))
        tour.install()
        with tour.cluster():
            walk(tour, Path(given.pictures or tour.folder / "pictures"))
    print("all as it must be")
    return 0


def walk(tour: Tour, pictures: Path) -> None:
    print(tour.run("strom", "doctor"))
    words = ["--registry", str(tour.folder / "registry"), "--rest-port", "0", "--rest-programs"]
    rest = tour.strom("cluster", "start", *words)["rest"]

    tour.run("strom", "run", "--detached", str(tour.program("by-strom-run")))
    tour.program("by-ray-job-submit")
    tour.run(
        *("ray", "job", "submit", "--no-wait", "--address", tour.submissions),
        *("--", str(tour.bin / "python"), str(tour.folder / "by-ray-job-submit.py")),
    )
    _upload(rest, tour.program("by-rest"))
    names = {"by-strom-run", "by-ray-job-submit", "by-rest"}
    _until(lambda: set(tour.running()) == names, "three jobs that run")
    print(tour.run("strom", "list"))

    job = tour.running()["by-strom-run"]
    _until(lambda: _rate(tour, job) > 0, "a throughput in `strom top`")
    print(tour.run("strom", "top", job, "--once"))
    taken = tour.strom("savepoint", job, str(tour.folder / "savepoints"))
    _must(Path(str(taken["savepoint"]).removeprefix("file://")).is_dir(), f"a savepoint: {taken}")
    print(tour.run("strom", "state", "ls", str(taken["savepoint"])))
    moved = tour.strom("rescale", job, "3", "--directory", str(tour.folder / "savepoints"))
    _until(lambda: tour.running().get("by-strom-run") not in (None, job), "the rescaled job")
    print(f"rescaled: {moved}", flush=True)

    before = tour.running()
    (dispatcher,) = [one for one in psutil.process_iter(["cmdline"]) if _is_dispatcher(one, tour)]
    dispatcher.kill()
    _until(lambda: tour.running() == before, "the list after the dispatcher's death")
    print(tour.run("strom", "list"))

    photograph(rest, tour.running()["by-strom-run"], pictures)
    for job in tour.running().values():
        tour.run("strom", "cancel", job)
    _until(lambda: not tour.running(), "no job that runs")
    tour.run("strom", "cluster", "stop")


def photograph(rest: str, job: str, folder: Path) -> None:
    """Each page of a job that runs, in Chromium."""
    from shutil import which

    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    found = next(p for n in ("chromium", "chromium-browser", "google-chrome") if (p := which(n)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{rest}/#/jobs")
        page.get_by_text("by-strom-run").first.wait_for()
        page.screenshot(path=folder / "jobs.png")
        for place in PAGES:
            page.goto(f"{rest}/#/jobs/{job}{place}")
            page.get_by_role("heading", name="by-strom-run").first.wait_for()
            page.wait_for_load_state("networkidle", timeout=10_000)
            page.screenshot(path=folder / f"job{place.replace('/', '-')}.png", full_page=True)
        browser.close()
    _must(not complaints, f"pages without errors: {complaints}")
    print(f"{len(PAGES) + 1} pictures in {folder}", flush=True)


def _rate(tour: Tour, job: str) -> float:
    operators = tour.strom("top", job, "--once")["operators"]
    return max(float(one["out_per_s"]) for one in operators)


def _upload(rest: str, program: Path) -> None:
    mark = "strom-tour"
    head = f'--{mark}\r\nContent-Disposition: form-data; name="jarfile"; filename="{program.name}"'
    body = f"{head}\r\nContent-Type: text/x-python\r\n\r\n{program.read_text()}\r\n--{mark}--\r\n"
    kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
    name = _posted(f"{rest}/v1/programs/upload", body.encode(), kind)["id"]
    run = _posted(f"{rest}/v1/programs/{name}/run", b"{}", {"Content-Type": "application/json"})
    print(f"by REST: {run}", flush=True)


def _posted(url: str, body: bytes, headers: dict[str, str]) -> Any:
    try:
        ask = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(ask, timeout=WAIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error}: {error.read().decode()}") from None


def _runs(one: dict[str, Any]) -> bool:
    return bool(one["phase"] == "RUNNING" and one["status"] == "RUNNING")


def _is_dispatcher(process: psutil.Process, tour: Tour) -> bool:
    """Of this cluster, not of another on the machine."""
    if "Dispatcher" not in " ".join(process.info["cmdline"] or []):
        return False
    return bool(process.environ().get("HOME") == str(tour.folder))


def _run(words: list[str]) -> None:
    print(f"$ {' '.join(words)}", flush=True)
    subprocess.run(words, check=True, cwd=ROOT)


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        _must(time.monotonic() < deadline, f"within {WAIT_S:.0f} s {what}")
        time.sleep(0.5)


def _must(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"there should be {what}")


if __name__ == "__main__":
    sys.exit(main())
