"""A server that is gone, comes back, or has forgotten a job: the page says so, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dashboard_kit import Visit, serve
from played_cluster import SHOP, PlayedCluster

pytestmark = [pytest.mark.browser]

GONE = ["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "ERR_SOCKET"]


def test_what_is_shown_stays_and_is_marked_as_old(
    visit: Callable[..., Visit], cluster: PlayedCluster
) -> None:
    server = serve(cluster)
    port = int(server.address.rpartition(":")[2])
    try:
        one = visit(server.url, f"#/jobs/{SHOP}")
        one.page.locator(".card").first.wait_for()
        one.expected = GONE
    finally:
        server.close()
    one.refresh()
    alert = one.page.get_by_role("alert")
    alert.wait_for()
    assert "No answer" in alert.inner_text()
    assert "What is shown is as of" in alert.inner_text()
    assert one.page.locator(".card").count() == 8
    assert "stale" in (one.page.locator("body").get_attribute("class") or "")
    assert one.page.locator(".live").inner_text() == "no answer"
    # Tries become rare.
    waits = [one.page.evaluate(WAIT)]
    for _ in range(5):
        one.refresh()
        waits.append(one.page.evaluate(WAIT))
    assert waits == [4_000, 8_000, 16_000, 30_000, 30_000, 30_000]

    again = serve(cluster, port=port)
    try:
        cluster.now_ms += 60_000
        one.page.get_by_role("button", name="Try now").click()
        alert.wait_for(state="detached")
        one.page.get_by_text("runs 11 min 0 s").wait_for()
        assert "stale" not in (one.page.locator("body").get_attribute("class") or "")
    finally:
        again.close()


WAIT = """() => import('/static/app/polling.js').then(({ connection }) => {
  const wait = connection.nextAt - Date.now();
  return Math.ceil(wait / 2000) * 2000;  // a part of it is over
})"""


def test_a_job_that_the_server_forgets_stays_on_the_page(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    """As after a restart of a dispatcher without its registry."""
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.locator(".card").first.wait_for()
    one.expected = ["404"]
    kept = cluster.played.pop(SHOP)
    one.refresh()
    one.page.get_by_text("no longer knows this job").wait_for()
    assert one.page.locator(".card").count() == 8
    cluster.played[SHOP] = kept
    one.refresh()
    one.page.get_by_text("no longer knows this job").wait_for(state="detached")


def test_an_unknown_job_is_said_to_be_unknown(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, "#/jobs/0123456789abcdef")
    one.expected = ["404"]
    one.page.get_by_text("The server does not know this job").wait_for()
    one.page.get_by_role("link", name="Jobs", exact=True).click()
    one.page.get_by_role("link", name="clicks").wait_for()


def test_a_job_that_ends_is_shown_as_it_was(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.locator(".card").first.wait_for()
    job = cluster.played[SHOP]
    job.status, job.ended_ms = "FAILED", cluster.now_ms
    one.refresh()
    one.page.locator(".job .state", has_text="failed").wait_for()
    one.page.locator(".notice.error", has_text="KeyError: 'currency'").wait_for()
    assert one.page.title() == "orders \u2013 failed · strom"
    cluster.now_ms += 60_000
    one.refresh()
    assert "ran 10 min 0 s" in one.text()


def test_an_answer_that_is_no_json_is_an_error_and_no_end(
    visit: Callable[..., Visit], server: Any
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.locator(".card").first.wait_for()
    one.expected = ["502"]
    one.page.route("**/v1/**", lambda route: route.fulfill(status=502, body="<html>proxy</html>"))
    one.refresh()
    assert "the server answers 502" in one.page.get_by_role("alert").inner_text()
    one.page.unroute("**/v1/**")
    one.refresh()
    one.page.get_by_role("alert").wait_for(state="detached")


def test_one_path_without_an_answer_is_not_the_end_of_the_server(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.locator(".card").first.wait_for()
    one.expected = ["503"]
    broken = {"status": 503, "json": {"errors": ["the coordinator does not answer: ask again"]}}
    one.page.route("**/figures", lambda route: route.fulfill(**broken))
    cluster.now_ms += 60_000
    one.refresh()
    one.page.get_by_text("Some of what is shown is old: the coordinator does not").wait_for()
    one.page.get_by_text("runs 11 min 0 s").wait_for()
    assert "stale" not in (one.page.locator("body").get_attribute("class") or "")
    assert one.page.evaluate(WAIT) == 2_000
    one.page.unroute("**/figures")
    # One that takes long holds up no other, and is shown when it comes.
    held: list[Any] = []
    one.page.route("**/figures", lambda route: held.append(route))
    cluster.now_ms += 60_000
    one.page.evaluate(
        "() => import('/static/app/polling.js').then((polling) => polling.refreshAfter())"
    )
    one.page.get_by_text("runs 12 min 0 s").wait_for()
    (late,) = held
    late.continue_()
    one.page.unroute("**/figures")
    one.refresh()
    one.page.get_by_text("Some of what is shown is old").wait_for(state="detached")
