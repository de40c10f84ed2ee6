"""Each page in a real browser: it shows what the server says, follows it, and is accessible."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from dashboard_kit import Visit
from played_cluster import CLICKS, DONE, FAILED, QUEUED, SHOP, PlayedCluster
from strom.rest.paths import flame_graphs

pytestmark = [pytest.mark.browser]

REVENUE = f"{6:08x}{SHOP[:8]}"

NONE = "\u2013"
"""What is not known."""

PAGES = {
    "jobs": ("#/jobs", "backfill of 2025"),
    "overview": (f"#/jobs/{SHOP}", "revenue per shop and minute"),
    "vertex": (f"#/jobs/{SHOP}/vertices/{REVENUE}", "uid revenue-per-shop-and-minute"),
    "checkpoints": (f"#/jobs/{SHOP}/checkpoints", "declined by enrich"),
    "checkpoint": (f"#/jobs/{SHOP}/checkpoints/57", "Subtasks of"),
    "exceptions": (f"#/jobs/{SHOP}/exceptions", 'RATES[order.meta["currency"]]'),
    "configuration": (f"#/jobs/{SHOP}/configuration", "FixedDelayRestart"),
    "flamegraph": (f"#/jobs/{SHOP}/flamegraph", "Take samples"),
    "waiting": (f"#/jobs/{QUEUED}", "it needs 24 CPUs"),
    "failed": (f"#/jobs/{FAILED}", "KeyError: 'currency'"),
    "finished": (f"#/jobs/{DONE}/checkpoints", "Checkpoints"),
    "nothing": ("#/elsewhere", "There is no such page"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_load_and_are_accessible(
    visit: Callable[..., Visit], server: Any, theme: str
) -> None:
    """By axe: nothing to complain of. Nor has the console."""
    from axe_playwright_python.sync_playwright import Axe

    axe, one = Axe(), visit(server.url, color_scheme=theme)
    # Between the two only colours differ.
    colors = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    options = None if theme == "light" else colors
    for name, (path, shown) in PAGES.items():
        one.go(path)
        one.page.get_by_text(shown).first.wait_for()
        found = axe.run(one.page, options=options).response["violations"]
        assert not [
            (name, each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found
        ]


def test_jobs_are_listed_by_what_they_do(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url)
    one.page.get_by_role("link", name="orders", exact=True).wait_for()
    assert one.page.get_by_role("heading", level=2).all_inner_texts() == [
        "Running",
        "Waiting",
        "Over",
    ]
    tables = one.page.get_by_role("region")
    assert tables.count() == 3
    assert "clicks" in tables.nth(0).inner_text()
    assert "7 of 48 are free" in tables.nth(1).inner_text()
    assert "failed" in tables.nth(2).inner_text()


def test_the_graph_shows_who_is_busy_and_whom_others_wait_for(
    visit: Callable[..., Visit], server: Any
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}")
    cards = one.page.locator(".card")
    cards.first.wait_for()
    assert cards.count() == 8
    source = one.page.locator(".card", has_text="Source: orders")
    assert "heat-held" in (source.get_attribute("class") or "")
    assert "backpressured" in (source.get_attribute("aria-label") or "")
    enrich = one.page.locator(".card", has_text="enrich")
    assert "heat-hot" in (enrich.get_attribute("class") or "")
    assert re.search(r"Records wait for\s+enrich", one.text())
    assert one.page.locator(".edges text").all_text_contents().count("hash") == 3


def test_figures_follow_the_job(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    """Rates are worked out from counts: 42,000 and 18,000 records a second come in."""
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.locator(".card").first.wait_for()
    for _ in range(4):
        cluster.now_ms += 2_000
        one.refresh()
    tile = one.page.locator(".tile", has_text="Records in").locator("dd")
    first = tile.inner_text()
    assert 50 < float(first.split("K")[0]) < 70
    assert one.page.locator(".plot canvas").count() == 4
    for job in cluster.played.values():
        job.vertices = tuple(vertex for vertex in job.vertices)
    cluster.now_ms += 20_000
    one.refresh()
    assert tile.inner_text() != first
    assert "runs 10 min 28 s" in one.text()


def test_it_asks_by_itself(
    visit: Callable[..., Visit], server: Any, cluster: PlayedCluster
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}")
    one.page.get_by_label("Refresh").select_option("every 1 s")
    one.page.get_by_text("runs 10 min 0 s").wait_for()
    cluster.now_ms += 60_000
    one.page.get_by_text("runs 11 min 0 s").wait_for()
    one.page.get_by_label("Refresh").select_option("paused")
    one.page.locator(".live", has_text="paused").wait_for()


def test_a_restart_begins_the_rates_anew(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url)
    found = one.page.evaluate(
        """async () => {
          const { Rate } = await import('/static/app/series.js');
          const rate = new Rate();
          return [[0, 0], [1000, 10], [2000, 30], [12000, 130], [13000, 5], [15000, 25]]
            .map(([now, n]) => rate.at(now, n));
        }"""
    )
    assert found == [None, 10, 15, 10, None, 10]


def test_figures_are_said_shortly(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url)
    found = one.page.evaluate(
        """async () => {
          const f = await import('/static/app/format.js');
          return [f.short(999), f.short(999999), f.short(-12345), f.bytes(1536), f.bytes(-1),
            f.rate(0.25), f.rate(null), f.duration(59999), f.duration(-1), f.duration(90061000),
            f.watermark(9223372036854775807), f.watermark(null), f.lagOf(500, 2000),
            f.percent(0.995), f.moment(0)];
        }"""
    )
    assert [one.replace("\u202f", " ") if isinstance(one, str) else one for one in found] == [
        "999", "1.00 M", "-12.3 K", "1.50 KiB", NONE,
        "0.3/s", NONE, "1 min 0 s", NONE, "1 d 1 h",
        "end", NONE, 1500, "100%", NONE,
    ]  # fmt: skip


def test_an_uneven_subtask_is_marked(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}/vertices/{REVENUE}")
    one.page.locator("tr.marked").wait_for()
    assert one.page.locator("tr.marked").count() == 1
    assert "uneven" in one.page.locator("tr.marked").inner_text()
    assert re.search(r"1 of 6 subtasks gets more than twice the mean of records: 0", one.text())


def test_the_users_own_frames_come_first_and_all_of_it_on_demand(
    visit: Callable[..., Visit], server: Any
) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}/exceptions")
    one.page.locator(".frames").wait_for()
    frames = one.page.locator(".frames li").all_inner_texts()
    assert [frame.split()[0] for frame in frames] == ["enrich", "price_of"]
    assert "site-packages" not in one.page.locator(".frames").inner_text()
    assert not one.page.locator("pre.trace").is_visible()
    one.page.get_by_text("All of it").click()
    assert "site-packages/rates/table.py" in one.page.locator("pre.trace").inner_text()


def test_checkpoints_lead_to_their_subtasks(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}/checkpoints")
    one.page.get_by_role("link", name="#58", exact=True).click()
    one.page.get_by_role("heading", name="Subtasks of revenue per shop and minute").wait_for()
    one.page.get_by_role("button", name="enrich").click()
    one.page.get_by_role("heading", name="Subtasks of enrich").wait_for()
    table = one.page.get_by_role("region", name="Subtasks of enrich in the checkpoint")
    table.locator("tbody tr").nth(3).wait_for()
    assert table.locator("tbody tr").count() == 4


def test_options_are_found(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}/configuration")
    one.page.get_by_label("Find").fill("rocksdb")
    table = one.page.get_by_role("region", name="Configuration of the job")
    table.locator("tbody tr").nth(1).wait_for(state="detached")
    assert table.locator("tbody tr").count() == 1
    assert "state.backend" in table.inner_text()


def test_a_small_screen_has_no_second_scroll_bar(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, f"#/jobs/{CLICKS}", viewport={"width": 390, "height": 800})
    one.page.locator(".card").first.wait_for()
    wide = one.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_the_look_is_chosen_and_kept(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = one.page.evaluate(background)
    one.page.get_by_label("Look").select_option("dark")
    dark = one.page.evaluate(background)
    assert light != dark
    one.page.reload()
    assert one.page.evaluate(background) == dark
    one.page.get_by_label("Look").select_option("system")
    assert one.page.evaluate(background) == light


def test_flames_are_walked_into(
    visit: Callable[..., Visit], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that is chosen fills the width; what is on the way there leads back."""
    text = "run;step;work 30\nrun;step;work;inner 10\nrun;rest 60\n"
    stacks = flame_graphs.stacks_in(text)
    monkeypatch.setattr(flame_graphs, "_sampled_everywhere", lambda processes, kind: stacks)
    one = visit(server.url, f"#/jobs/{SHOP}/flamegraph/{REVENUE}")
    one.page.get_by_role("button", name="Take samples").click()
    frames = one.page.locator(".frame")
    frames.first.wait_for()
    assert frames.all_inner_texts() == ["root", "run", "rest", "step", "work", "inner"]
    hot = one.page.get_by_role("region", name="Functions by their own samples")
    assert [row.split() for row in hot.locator("tbody tr").all_inner_texts()[:2]] == [
        ["rest", "60%", "60%"],
        ["work", "30%", "40%"],
    ]
    one.page.locator(".frame", has_text="step").click()
    frames.filter(has_text="root").wait_for(state="detached")
    assert frames.all_inner_texts() == ["step", "work", "inner"]
    crumbs = one.page.get_by_role("navigation", name="Chosen frames")
    assert crumbs.get_by_role("button").all_inner_texts() == ["all", "run", "step"]
    crumbs.get_by_role("button", name="all").click()
    frames.filter(has_text="root").wait_for()


def test_flames_that_are_refused_say_why(visit: Callable[..., Visit], server: Any) -> None:
    one = visit(server.url, f"#/jobs/{SHOP}/flamegraph/{REVENUE}")
    one.expected = ["409"]
    one.page.get_by_role("button", name="Take samples").click()
    one.page.locator(".notice.error", has_text="it runs on node-").wait_for()


def test_logs_are_read_on_from_where_the_page_is(visit: Callable[..., Visit], server: Any) -> None:
    entry = {
        "time": "2026-03-02T12:00:00.000001Z",
        "level": "ERROR",
        "operator": "enrich",
        "subtask": 1,
        "message": "no <b>rate</b>",
        "error": "Traceback ...",
    }
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url.partition("?")[2])
        cursor = f"at/{len(asked)}="
        new = {**entry, "message": f"retried {len(asked)}", "level": "INFO"}
        entries = [entry, new] if len(asked) == 1 else [new] if len(asked) == 3 else []
        route.fulfill(json={"entries": entries, "cursor": cursor, "more": False, "missing": {}})

    one = visit(server.url, "#/")
    one.page.route("**/logs?*", answer)
    one.page.goto(f"{server.url}/#/jobs/{SHOP}")
    one.page.get_by_role("link", name="Logs").click()
    log = one.page.locator("pre.log")
    log.get_by_text("retried 3").wait_for()
    assert asked[0] == "tail=500"
    assert asked[1:3] == ["cursor=at%2F1%3D&limit=2000", "cursor=at%2F2%3D&limit=2000"]
    said = log.inner_text()
    assert "ERROR  enrich/1  no <b>rate</b>\nTraceback ..." in said
    assert said.count("retried 1") == 1
    one.page.get_by_label("Find").fill("RETRIED")
    one.page.locator(".level-error").wait_for(state="detached")
    assert "retried" in log.inner_text()


def test_a_browser_that_keeps_nothing_shows_the_page(
    visit: Callable[..., Visit], server: Any
) -> None:
    one = visit(server.url)
    one.page.add_init_script(
        """for (const name of ['localStorage', 'sessionStorage']) {
          Object.defineProperty(window, name, { get() { throw new Error('not kept'); } });
        }"""
    )
    one.page.reload()
    one.page.get_by_label("Look").select_option("dark")
    one.page.get_by_role("link", name="orders", exact=True).click()
    one.page.locator(".card").first.wait_for()
