"""Names and texts of users are shown as they are, never read as markup; large jobs stay quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dashboard_kit import Visit, serve
from played_cluster import SHOP, TRACE, PlayedCluster
from played_jobs import NOON, Played, PlayedJob, wide

pytestmark = [pytest.mark.browser]

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>alert(1)</script>&amp;"
SCRIPT = "javascript:alert(1)"

MOST_MS = 250
"""For what a round of news changes on the page, also on a busy machine."""


@pytest.fixture
def hostile() -> PlayedCluster:
    vertices = (
        Played(HOSTILE, 2, (), runs_as=HOSTILE),
        Played(SCRIPT, 2, ((0, f"HASH({HOSTILE})"),)),
        Played("\u202e\u0000 " + "long" * 300, 1, ((1, HOSTILE),)),
    )
    failure: dict[str, Any] = {
        "cause": f"{HOSTILE}\n{TRACE.replace('enrich', HOSTILE)}",
        "time_ms": NOON,
        "attempt": 0,
        "vertex": None,
        "subtask": None,
        "task": HOSTILE,
        "host": HOSTILE,
    }
    job = PlayedJob(SHOP, HOSTILE, vertices, failures=[failure], restarts=1)
    return PlayedCluster([job, PlayedJob("1" * 16, HOSTILE, waits_for=HOSTILE)])


def test_names_and_errors_are_text(visit: Callable[..., Visit], hostile: PlayedCluster) -> None:
    server = serve(hostile)
    try:
        one = visit(server.url)
        vertex = f"{1:08x}{SHOP[:8]}"
        for path in (
            "#/jobs", f"#/jobs/{SHOP}", f"#/jobs/{SHOP}/vertices/{vertex}",
            f"#/jobs/{SHOP}/checkpoints/9", f"#/jobs/{SHOP}/exceptions",
            f"#/jobs/{SHOP}/configuration", f"#/jobs/{SHOP}/flamegraph", f"#/jobs/{'1' * 16}",
        ):  # fmt: skip
            one.go(path)
            one.page.get_by_text("<script>alert(1)</script>").first.wait_for(state="attached")
            one.page.wait_for_load_state("networkidle")
            assert one.page.locator("img").count() == 0, path
            assert one.page.locator("#app script").count() == 0, path
            assert one.page.locator("a[href^=javascript]").count() == 0, path
            assert one.page.title() != "taken"
    finally:
        server.close()


def test_the_browser_refuses_markup_where_a_page_would_take_some(
    visit: Callable[..., Visit], server: Any
) -> None:
    one = visit(server.url)
    one.expected = ["TrustedHTML", "TrustedScript"]
    assert one.page.evaluate(
        """() => {
          const tried = [
            () => { document.body.innerHTML = '<b>x</b>'; },
            () => { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); },
            () => document.body.setAttribute('onclick', '1'),
            () => { document.createElement('script').text = '1'; },
          ];
          return tried.map((one) => {
            try { one(); return 'done'; } catch (error) { return error.name; }
          });
        }"""
    ) == ["TypeError"] * 4  # fmt: skip


def test_addresses_may_say_anything(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url)
    one.expected = ["404", "400"]
    for path in ("#/jobs/%", "#/jobs/..%2f..", "#/jobs/<b>", f"#/jobs/{SHOP}/vertices/nobody",
                 f"#/jobs/{SHOP}/checkpoints/99999", "#//", f"#/jobs/{SHOP}/nowhere"):  # fmt: skip
        one.go(path)
        one.page.locator("h1").wait_for()
        assert one.page.locator("main").inner_text()


@pytest.fixture
def large() -> PlayedCluster:
    """100 vertices; one has 1,000 subtasks."""
    return PlayedCluster([PlayedJob(SHOP, "large", wide(), interval_ms=300_000)])


def test_a_hundred_vertices_and_a_thousand_subtasks(
    visit: Callable[..., Visit], large: PlayedCluster
) -> None:
    server = serve(large)
    try:
        one = visit(server.url, f"#/jobs/{SHOP}")
        one.page.locator(".card").nth(99).wait_for()
        # Pages keep what they have while they are asked for new figures.
        first = one.page.locator(".card").first.element_handle()
        took = _least_ms(one, large)
        assert first.evaluate("(card) => card.isConnected"), "the graph was laid out anew"
        assert took < MOST_MS

        one.go(f"#/jobs/{SHOP}/vertices/{100:08x}{SHOP[:8]}")
        table = one.page.get_by_role("region", name="Subtasks of")
        table.locator("tbody tr").nth(49).wait_for()
        assert table.locator("tbody tr").count() == 50
        one.page.get_by_text("1\u201350 of 1,000").wait_for()
        took = _least_ms(one, large)
        assert took < MOST_MS
        table.get_by_role("button", name="Subtask", exact=True).click()
        assert table.locator("tbody th").first.inner_text() == "999"
        one.page.get_by_role("button", name="Last page").click()
        one.page.get_by_text("951\u20131,000 of 1,000").wait_for()
        assert table.locator("tbody th").last.inner_text() == "0"
    finally:
        server.close()


def _least_ms(one: Visit, cluster: PlayedCluster) -> float:
    """What the page's thread works for the answers of a round: scripts, styles and layout. The
    least of some rounds, as the machine has other things to do."""
    session = one.page.context.new_cdp_session(one.page)
    session.send("Performance.enable")

    def worked() -> float:
        found = {x["name"]: x["value"] for x in session.send("Performance.getMetrics")["metrics"]}
        names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
        return 1000.0 * sum(found[name] for name in names)

    took = []
    for _ in range(8):
        cluster.now_ms += 2_000
        before = worked()
        one.refresh()
        one.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")
        took.append(worked() - before)
    return min(took)


def test_played_jobs_are_the_same_each_time() -> None:
    """What pictures and limits rest on."""
    job = PlayedJob(SHOP, "large", wide(10, 20))
    again = replace(job)
    assert job.view(NOON + 5_000) == again.view(NOON + 5_000)
