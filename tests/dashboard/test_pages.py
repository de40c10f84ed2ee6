"""The dashboard's files: what is served, under which rules, and that wheels have all of it."""

from __future__ import annotations

import configparser
import re
from fnmatch import fnmatch
from pathlib import Path

import strom
from rest_kit import TOKENS, PlayedJobs, client_of
from strom.dashboard import pages
from strom.rest.servers.guard import Access

STATIC = Path(strom.__file__).parent / "dashboard" / "static"
OWN = [path for path in STATIC.rglob("*") if path.is_file() and path.parent.name != "vendor"]


def test_the_page_may_run_nothing_but_its_own_files() -> None:
    with client_of(PlayedJobs()) as client:
        answer = client.get("/")
        policy = answer.headers["content-security-policy"]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "trusted-types 'none'" in policy
        for path in re.findall(r'(?:src|href)="(static/[^"]+)"', answer.text):
            found = client.get(f"/{path}")
            assert found.status_code == 200, path
            assert found.headers["content-security-policy"] == policy
            assert found.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text


def test_modules_are_javascript_to_the_browser() -> None:
    with client_of(PlayedJobs()) as client:
        answer = client.get("/static/app/main.js")
        assert answer.headers["content-type"].startswith("text/javascript")
        assert client.get("/static/icon.svg").headers["content-type"] == "image/svg+xml"


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    with client_of(PlayedJobs()) as client:
        first = client.get("/static/style.css")
        etag = first.headers["etag"]
        assert first.headers["cache-control"] == "no-cache"
        again = client.get("/static/style.css", headers={"If-None-Match": f'"old", W/{etag}'})
        assert (again.status_code, again.content) == (304, b"")
        changed = client.get("/static/style.css", headers={"If-None-Match": '"old"'})
        assert (changed.status_code, changed.content) == (200, first.content)
        assert client.head("/static/style.css").headers["etag"] == etag


def test_there_are_no_other_files() -> None:
    with client_of(PlayedJobs()) as client:
        for path in ("../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "nothing.js", "", "app"):
            assert client.get(f"/static/{path}").status_code in (404, 405), path


def test_who_has_no_token_gets_the_page_and_nothing_of_jobs() -> None:
    with client_of(PlayedJobs(), Access(TOKENS)) as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/app/main.js").status_code == 200
        for path in ("/v1/jobs/overview", "/jobs", "/v1/config", "/staticx", "/v1/openapi.json"):
            assert client.get(path).status_code == 401, path


def test_no_file_loads_anything_from_elsewhere_or_takes_data_for_markup() -> None:
    forbidden = re.compile(
        r"https?://(?!www\.w3\.org)|innerHTML|outerHTML|insertAdjacentHTML|eval\("
    )
    for path in OWN:
        found = forbidden.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"


def test_each_library_has_its_licence() -> None:
    names = {path.name for path in (STATIC / "vendor").iterdir()}
    for library in ("preact", "htm", "uplot", "dagre"):
        assert {f"{library}.js", f"{library}.LICENSE.txt"} <= names
    assert sum(path.stat().st_size for path in (STATIC / "vendor").iterdir()) < 200_000


def test_a_wheel_has_all_files() -> None:
    setup = configparser.ConfigParser()
    setup.read(STATIC.parents[1] / "setup.cfg")
    patterns = setup["options.package_data"]["strom.dashboard"].replace(",", " ").split()
    for name in pages.pages():
        path = f"static/{name}"
        here = [one for one in patterns if one.count("/") == path.count("/") and fnmatch(path, one)]
        assert here, f"{path} is not packaged"
