"""Who is let in: hosts, origins, tokens and roles, and how large a body may be."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest_kit import OPERATE, READ, SUMS, TOKENS, PlayedJobs, bearer, client_of
from starlette.testclient import TestClient
from strom.core.errors import ConfigurationError
from strom.rest.servers.api import Serving
from strom.rest.servers.guard import Access
from strom.rest.servers.tokens import Tokens, tokens_in, tokens_of_environment

JOB = "/v1/jobs/0123456789abcdef"
FLAMES = f"{JOB}/vertices/{SUMS}/flamegraph"


@pytest.fixture
def open_client() -> Iterator[TestClient]:
    with client_of(PlayedJobs()) as client:
        yield client


@pytest.fixture
def guarded_client() -> Iterator[TestClient]:
    access = Access(TOKENS, frozenset({"strom.example"}), public=("/", "/ui/"))
    with client_of(PlayedJobs(), access) as client:
        yield client


def test_roles(guarded_client: TestClient) -> None:
    reads, operates = bearer(READ), bearer(OPERATE)
    assert guarded_client.get(JOB).status_code == 401
    assert guarded_client.get(JOB).headers["WWW-Authenticate"] == "Bearer"
    assert guarded_client.get("/v1/openapi.json").status_code == 401
    assert guarded_client.get(JOB, headers=reads).status_code == 200
    assert guarded_client.get(JOB, headers=operates).status_code == 200
    assert guarded_client.patch(JOB, headers=reads).status_code == 403
    assert guarded_client.post(f"{JOB}/stop", headers=reads).status_code == 403
    assert guarded_client.patch(JOB, headers=operates).status_code == 202


@pytest.mark.parametrize("path", [FLAMES, FLAMES.removeprefix("/v1")])
def test_to_look_into_processes_is_to_operate(path: str) -> None:
    with client_of(PlayedJobs(), Access(TOKENS)) as client:
        assert client.get(path, headers=bearer(READ)).status_code == 403
        assert client.get(path, headers=bearer(OPERATE)).status_code == 409
        # A route's end is before a line break, too.
        assert client.get(f"{path}%0A", headers=bearer(READ)).status_code == 400
    with client_of(PlayedJobs()) as client:
        for site in ("cross-site", "same-site"):
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403
        assert client.get(path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 409


@pytest.mark.parametrize(
    "given",
    [
        {"Authorization": READ},
        {"Authorization": f"Basic {READ}"},
        bearer(READ[:-1]),
        bearer(READ + "r"),
        bearer(""),
        bearer("\u00e9" * 20),
    ],
    ids=str,
)
def test_wrong_tokens(guarded_client: TestClient, given: dict[str, str]) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    assert guarded_client.get(JOB, headers=headers).status_code == 401
    twice = [(b"authorization", f"Bearer {READ}".encode())] * 2
    assert guarded_client.get(JOB, headers=twice).status_code == 401


def test_only_what_is_public_needs_no_token(guarded_client: TestClient) -> None:
    assert guarded_client.get("/").status_code == 200  # the dashboard
    assert guarded_client.get("/ui/app.js").status_code == 404
    for path in ("/ui", "/uix", "/ui/../v1/jobs", "//", "/v1/jobs"):
        assert guarded_client.get(f"http://127.0.0.1{path}").status_code == 401, path


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_that_was_rebound_is_refused(open_client: TestClient, host: str) -> None:
    answer = open_client.get("/v1/jobs", headers={"Host": host})
    assert (answer.status_code, list(answer.json())) == (421, ["errors"])


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80", "localhost:8081", "[::1]:99", "strom.example", "STROM.example:1"]
)
def test_its_own_names(guarded_client: TestClient, host: str) -> None:
    answer = guarded_client.get("/v1/jobs", headers={"Host": host, **bearer(READ)})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8081.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_pages_of_other_origins_change_nothing(headers: dict[str, str]) -> None:
    catalog = PlayedJobs()
    with client_of(catalog) as client:
        for method, path in (
            ("PATCH", JOB),
            ("POST", f"{JOB}/stop"),
            ("POST", f"{JOB}/savepoints"),
        ):
            assert client.request(method, path, headers=headers).status_code == 403
    assert catalog.asked == []


def test_its_own_pages_may(open_client: TestClient) -> None:
    headers = {"Origin": "http://127.0.0.1:8081", "Sec-Fetch-Site": "same-origin"}
    assert open_client.patch(JOB, headers=headers).status_code == 202
    assert open_client.get(JOB, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_a_form_of_another_page_is_no_request(open_client: TestClient) -> None:
    """What a browser sends across origins without asking is never JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = open_client.post(
            f"{JOB}/stop", content=b'{"drain": true}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 400, kind


def test_bodies_that_are_too_large() -> None:
    catalog = PlayedJobs()
    with client_of(catalog, Access(body_limit=100)) as client:
        declared = client.post(f"{JOB}/stop", content=b" " * 101)
        streamed = client.post(f"{JOB}/stop", content=iter([b" " * 60, b" " * 60]))
        lying = client.post(
            f"{JOB}/stop", content=iter([b" " * 60] * 3), headers={"Content-Length": "5"}
        )
    for answer in (declared, streamed, lying):
        assert answer.status_code == 413
        assert "larger than 100 bytes" in answer.json()["errors"][0]
    assert catalog.asked == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"null1", b"\xff", b'{"drain": 3}', b"[" * 10_000])
def test_bodies_that_are_wrong(open_client: TestClient, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = open_client.post(f"{JOB}/stop", content=body, headers=headers)
    assert (answer.status_code, list(answer.json())) == (400, ["errors"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/..%2F..%2Fetc",
        "/v1/jobs/%2e%2e",
        "/v1/jobs/a%00b",
        "/v1/jobs/" + "a" * 65,
        f"{JOB}/vertices/%2e%2e%2f",
        f"{JOB}/checkpoints/details/-1",
        f"{JOB}/checkpoints/details/{'9' * 40}",
        f"{JOB}/savepoints/..%5c..",
    ],
)
def test_ids_that_are_none(open_client: TestClient, path: str) -> None:
    answer = open_client.get(path)
    assert answer.status_code in (400, 404)
    assert list(answer.json()) == ["errors"]


def test_every_answer_says_how_it_may_be_used(open_client: TestClient) -> None:
    for path in ("/v1/jobs", "/v1/nothing"):
        headers = open_client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")
        assert "Access-Control-Allow-Origin" not in headers


def test_tokens_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    made = tokens_in(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tokens_in(path) == made
    assert made.read != made.operate
    assert repr(made) == "Tokens()"
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="others can read"):
        tokens_in(path)
    path.chmod(0o600)
    for text in ("", "[]", '{"read": "x"}', '{"read": "short", "operate": "short"}'):
        path.write_text(text)
        with pytest.raises(ConfigurationError):
            tokens_in(path)


def test_tokens_of_the_environment() -> None:
    names = ("STROM_REST_READ_TOKEN", "STROM_REST_OPERATE_TOKEN")
    assert tokens_of_environment({}) is None
    assert tokens_of_environment(dict(zip(names, (READ, OPERATE), strict=True))) == TOKENS
    with pytest.raises(ConfigurationError, match="or neither"):
        tokens_of_environment({names[0]: READ})
    with pytest.raises(ConfigurationError, match="not be the same"):
        Tokens(READ, READ)


def test_beyond_loopback_there_are_tokens() -> None:
    Serving("127.0.0.1")
    Serving("0.0.0.0", tokens="file")
    for host in ("0.0.0.0", "::", "10.1.2.3", "some.host"):
        with pytest.raises(ConfigurationError, match="needs tokens"):
            Serving(host)
