"""What can be done to a job from the page, by mouse and by keyboard, with a token and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dashboard_kit import Visit, serve
from played_cluster import DONE, MOVED, SHOP, PlayedCluster
from rest_kit import OPERATE, READ, TOKENS
from strom.rest.servers.guard import Access

pytestmark = [pytest.mark.browser]


@pytest.fixture
def job(visit: Callable[..., Visit], server: Any) -> Visit:
    return visit(server.url, f"#/jobs/{SHOP}")


def test_a_savepoint_is_taken_and_its_path_is_shown(job: Visit, cluster: PlayedCluster) -> None:
    cluster.may_end.clear()
    job.page.get_by_role("button", name="Savepoint…").click()
    job.page.get_by_label("Folder").fill("s3://elsewhere")
    job.page.get_by_role("button", name="Take it").click()
    job.page.locator(".notice", has_text="A savepoint is being taken").wait_for()
    cluster.may_end.set()
    job.page.locator(".notice", has_text="s3://elsewhere/savepoint-5b0d1a-1").wait_for()
    assert cluster.asked == [("savepoint", SHOP, "s3://elsewhere", None)]
    job.page.get_by_role("button", name="Close this message").click()
    assert job.page.locator(".job .notice").count() == 0


def test_a_look_at_a_savepoint_that_fails_says_nothing_of_it(
    job: Visit, cluster: PlayedCluster
) -> None:
    job.expected = ["502"]
    looks: list[int] = []

    def first_fails(route: Any) -> None:
        looks.append(1)
        if len(looks) == 1:
            route.fulfill(status=502, body="<html>proxy</html>")
        else:
            route.continue_()

    job.page.route("**/savepoints/*", first_fails)
    job.page.get_by_role("button", name="Savepoint…").click()
    job.page.get_by_role("button", name="Take it").click()
    job.page.locator(".notice.good", has_text="savepoint-5b0d1a-1").wait_for()
    assert len(looks) > 1


def test_a_savepoint_that_fails_says_why(job: Visit, cluster: PlayedCluster) -> None:
    job.page.get_by_role("button", name="Savepoint…").click()
    job.page.get_by_label("Folder").fill("nowhere")
    job.page.get_by_role("button", name="Take it").click()
    job.page.locator(".notice.error", has_text="there is no such folder").wait_for()


def test_a_job_is_stopped_with_a_savepoint(job: Visit, cluster: PlayedCluster) -> None:
    job.page.get_by_role("button", name="Stop…").click()
    job.page.get_by_label("Drain").check()
    job.page.get_by_role("button", name="Stop the job").click()
    job.page.locator(".notice.good", has_text="The job has stopped").wait_for()
    assert cluster.asked == [("savepoint", SHOP, None, "drain")]
    job.page.locator(".job .state", has_text="finished").wait_for()
    for name in ("Savepoint…", "Stop…", "Cancel job…"):
        assert job.page.get_by_role("button", name=name).is_disabled()
    assert "Job orders is now finished" in job.page.locator(".unseen[role=status]").inner_text()


def test_a_job_is_rescaled_and_followed(job: Visit, cluster: PlayedCluster) -> None:
    job.page.get_by_role("button", name="Rescale…").click()
    job.page.get_by_role("spinbutton", name="Parallelism").fill("12")
    job.page.get_by_role("button", name="Rescale", exact=True).click()
    job.page.get_by_role("link", name=f"as job {MOVED}").click()
    job.page.locator(".job .state", has_text="running").wait_for()
    assert job.page.locator(".job code").first.inner_text() == MOVED
    assert cluster.asked == [("rescale", SHOP, 12, None)]


def test_a_job_is_cancelled_only_when_that_is_confirmed(job: Visit, cluster: PlayedCluster) -> None:
    """By keyboard: the dialog has the focus, on what does no harm; Escape leaves it, and the focus
    goes back."""
    button = job.page.get_by_role("button", name="Cancel job…")
    button.focus()
    job.page.keyboard.press("Enter")
    job.page.locator("dialog").wait_for()
    focused = job.page.locator(":focus")
    assert focused.inner_text() == "Keep it running"
    job.page.keyboard.press("Escape")
    job.page.locator("dialog").wait_for(state="detached")
    assert cluster.asked == []
    assert focused.inner_text() == "Cancel job…"
    job.page.keyboard.press("Enter")
    job.page.locator("dialog").wait_for()
    job.page.keyboard.press("Tab")
    assert focused.inner_text() == "Cancel the job"
    job.page.keyboard.press("Enter")
    job.page.locator(".job .state", has_text="canceled").wait_for()
    assert cluster.asked == [("cancel", SHOP)]


def test_nothing_can_be_done_to_what_is_over_or_archived(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    one = visit(server.url, f"#/jobs/{DONE}")
    button = one.page.get_by_role("button", name="Cancel job…")
    button.wait_for()
    assert button.is_disabled()
    cluster.kind = "archive"
    other = visit(server.url, f"#/jobs/{SHOP}")
    other.page.locator(".card").first.wait_for()
    assert other.page.get_by_role("button", name="Cancel job…").count() == 0


def test_the_graph_is_walked_with_the_keyboard(job: Visit) -> None:
    """From the top of the page: the first Tab leads past what is on every page."""
    job.page.locator(".card").first.wait_for()
    focused = job.page.locator(":focus")
    job.page.locator("body").press("Tab")
    assert focused.inner_text() == "Skip to the content"
    job.page.keyboard.press("Enter")
    assert focused.get_attribute("id") == "main"
    for _ in range(30):
        job.page.keyboard.press("Tab")
        if "card" in (focused.get_attribute("class") or ""):
            break
    assert "Source: orders" in (focused.get_attribute("aria-label") or "")
    job.page.keyboard.press("ArrowRight")
    assert "parse -> valid" in (focused.get_attribute("aria-label") or "")
    job.page.keyboard.press("ArrowRight")
    assert (focused.get_attribute("aria-label") or "").startswith("enrich")
    job.page.keyboard.press("ArrowLeft")
    assert "parse -> valid" in (focused.get_attribute("aria-label") or "")
    job.page.keyboard.press("Enter")
    job.page.get_by_role("heading", name="parse -> valid").wait_for()
    assert focused.inner_text() == "orders"  # the heading of what is new


def test_tables_are_sorted_with_the_keyboard(job: Visit) -> None:
    table = job.page.get_by_role("region", name="Vertices of the job")
    table.get_by_role("button", name="Subtasks").focus()
    job.page.keyboard.press("Enter")
    column = table.locator("th", has_text="Subtasks")
    assert column.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody th").first.inner_text() == "match payments"
    job.page.keyboard.press("Enter")
    assert column.get_attribute("aria-sort") == "ascending"
    assert table.locator("tbody th").first.inner_text() == "Sink: suspicious orders"


@pytest.fixture
def guarded(cluster: PlayedCluster) -> Any:
    server = serve(cluster, Access(TOKENS))
    yield server
    server.close()


def test_a_token_is_asked_for_once(visit: Callable[..., Visit], guarded: Any) -> None:
    one = visit(guarded.url)
    one.expected = ["401"]
    one.page.get_by_role("textbox", name="Token").fill("wrong")
    one.page.get_by_role("button", name="Go on").click()
    one.page.get_by_text("does not take this token").wait_for()
    one.page.keyboard.press("Escape")
    one.page.get_by_role("textbox", name="Token").fill(OPERATE)
    one.page.keyboard.press("Enter")
    one.page.get_by_role("link", name="orders", exact=True).click()
    one.page.locator(".card").first.wait_for()
    one.page.reload()
    one.page.locator(".card").first.wait_for()
    assert one.page.locator("dialog").count() == 0
    assert one.page.get_by_role("button", name="Cancel job…").is_enabled()
    assert one.page.evaluate("JSON.stringify(localStorage)").find(OPERATE) == -1


def test_what_was_asked_for_without_a_token_is_asked_for_again(
    visit: Callable[..., Visit], guarded: Any
) -> None:
    one = visit(guarded.url, f"#/jobs/{SHOP}/checkpoints")
    one.expected = ["401"]
    one.page.get_by_role("textbox", name="Token").fill(READ)
    one.page.keyboard.press("Enter")
    one.page.get_by_text("state backend").wait_for()
    one.page.get_by_role("button", name="Cancel job…").wait_for()


def test_a_link_may_bring_the_token_and_does_not_keep_it(
    visit: Callable[..., Visit], guarded: Any
) -> None:
    one = visit(guarded.url, f"#token={READ}")
    one.page.get_by_role("link", name="orders", exact=True).wait_for()
    assert READ not in one.page.url
    one.expected = ["403"]
    one.go(f"#/jobs/{SHOP}")
    one.page.get_by_role("button", name="Cancel job…").click()
    one.page.get_by_role("button", name="Cancel the job").click()
    one.page.locator(".notice.error", has_text="this token may read only").wait_for()
