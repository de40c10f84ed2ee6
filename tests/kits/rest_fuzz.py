"""Random requests to every path, made from the API's own description; `python rest_fuzz.py N SEED`
makes N for each. A case that fails is printed as a curl command."""

from __future__ import annotations

import io
import random
import sys
import tempfile
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
from strom.rest.app import guarded, make_app
from strom.rest.guard import Access
from strom.rest.program_runs import ProgramRuns, Run
from strom.rest.programs import Programs
from strom.rest.server import RestServer

KNOWN: dict[str, list[Any]] = {
    "jobid": ["0123456789abcdef", "fedcba9876543210"],
    "vertexid": [SOURCE, SUMS],
    "subtaskindex": [0, 1],
    "checkpointid": [1, 2, 3, 4],
}
"""Of which a random id is none."""


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
                    asked += _ask(strategy, cases // 2, first_seed, server.url, session)
    finally:
        server.close()
        folder.cleanup()
    return asked


def _ask(strategy: Any, cases: int, first_seed: int, url: str, session: requests.Session) -> int:
    count = 0
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
        answer = case.call(base_url=url, session=session)
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
