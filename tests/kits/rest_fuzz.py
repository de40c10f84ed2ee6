"""Random requests to every path, made from the API's own description; `python rest_fuzz.py N SEED`
makes N for each. A case that fails is printed as a curl command."""

from __future__ import annotations

import base64
import io
import itertools
import json
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from rest_kit import SOURCE, SUMS, PlayedJobs
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks
from strom.logs import files
from strom.rest.programs.runs import ProgramRuns, Run
from strom.rest.programs.uploads import Programs
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access
from strom.rest.servers.listener import HEAD, RestServer

KNOWN: dict[str, list[Any]] = {
    "jobid": ["0123456789abcdef", "fedcba9876543210"],
    "vertexid": [SOURCE, SUMS],
    "subtaskindex": [0, 1],
    "checkpointid": [1, 2, 3, 4],
}
"""Of which a random id is none."""


ODD_TIMES = (
    "0001-01-01T00:00+14:00",
    "9999-12-31T23:59-14:00",
    "15m",
    "9" * 30 + "d",
    "2030-01-01",
)


def cursors(folder: str) -> Iterator[str]:
    """Cursors that decode, to something or other, again and again."""
    places = ("Infinity", "1" + "0" * 25, "0", "-1", "NaN", "1e300", '"x"', "[]", "null")
    named = [f'{{"{folder}": {{"task-1-1.000001.jsonl": {at}}}}}' for at in places]
    texts = [named[0], "[" * 100_000, *named[1:], "7", "{}", '{"\\ud800": {}}']
    for text in itertools.cycle(texts):
        yield base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def some_logs(job: str) -> str:
    """Lines of a job; the name of their folder."""
    made = files.LogFolder(job, None)
    made.close()
    said = {"time": "2030-01-01T00:00:00.000000Z", "level": "INFO", "logger": "x", "message": "m"}
    lines = [{**said, "message": "caf\udce9"}, {**said, "extra": {"\udce9": [1]}}, said]
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (made.path / "task-1-1.000001.jsonl").write_text(text)
    return str(files.name_of(made.path))


class PlayedRuns(ProgramRuns):
    """Nothing is run."""

    def start(self, run: Run) -> Any:
        return SimpleNamespace(
            id="a" * 32,
            wait=lambda seconds: None,
            exit_code=None,
            jobs=[],
            began_ms=len(run.command()) + len(run.environment("a")),
            output="",
        )


def fuzz(cases: int, first_seed: int, **options: Any) -> int:
    """Ask each operation so many times; how often in all. AssertionError, or schemathesis's, for an
    answer that the description does not allow."""
    folder = tempfile.TemporaryDirectory()
    programs = Programs(Path(folder.name))
    KNOWN["programid"] = [programs.add("job.py", io.BytesIO(b""), 10).id]
    root, files.logs_root = files.logs_root, lambda: Path(folder.name) / "logs"
    logs = some_logs(KNOWN["jobid"][0])
    app = make_app(PlayedJobs(), Access(**options), programs, PlayedRuns(None))
    schema = schemathesis.openapi.from_dict(app.openapi())
    server = RestServer(guarded(app))
    asked = 0
    try:
        with requests.Session() as session:
            for found in schema.get_all_operations():
                operation = found.ok()
                for mode in GenerationMode:
                    strategy = operation.as_strategy(generation_mode=mode)
                    asked += _ask(strategy, cases // 2, first_seed, server.url, session, logs)
    finally:
        server.close()
        files.logs_root = root
        folder.cleanup()
    return asked


def too_long(case: Any) -> bool:
    """Whether the request's first line may be longer than the server reads."""
    said = f"{case.path_parameters}{case.query}".encode("utf-8", "surrogatepass")
    return 3 * len(said) > HEAD  # each byte may be escaped


def _ask(
    strategy: Any, cases: int, first_seed: int, url: str, session: requests.Session, logs: str
) -> int:
    count, odd = 0, cursors(logs)
    rng = random.Random(first_seed)

    @seed(first_seed)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy, st.booleans())
    def ask(case: Any, known: bool) -> None:
        nonlocal count
        count += 1
        if known:
            for name in case.path_parameters or {}:
                if name in KNOWN:
                    case.path_parameters[name] = rng.choice(KNOWN[name])
            if case.path.endswith("/logs"):
                case.query = dict((case.query or {}) if rng.random() < 0.3 else {})
                case.query["cursor"] = next(odd)
                if rng.random() < 0.3:
                    case.query["since"] = rng.choice(ODD_TIMES)
        try:
            answer = case.call(base_url=url, session=session)
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            if too_long(case):
                return  # the server hangs up on who goes on sending
            raise
        if answer.status_code == 400 and answer.text == "Invalid HTTP request received.":
            return  # too long for any path to see
        case.validate_response(
            answer,
            checks=[
                schemathesis.checks.not_a_server_error,
                openapi_checks.status_code_conformance,
                openapi_checks.content_type_conformance,
                openapi_checks.response_schema_conformance,
            ],
        )

    try:
        ask()
    except Unsatisfiable:  # there is nothing to get wrong in what takes no parameters
        pass
    except BaseException:
        print(f"replay with the seed {first_seed}", file=sys.stderr)
        raise
    return count


if __name__ == "__main__":
    CASES, SEED = (int(word) for word in (*sys.argv[1:], "200", "0")[:2])
    print(f"{fuzz(CASES, SEED)} requests")
