"""The history in a real browser: the filter, repeated sets, the pause, earlier entries, and the log files."""

from __future__ import annotations

from typing import Any

import pytest
from support.browser import Page
from support.daemon import running_daemon

from zoolet.client.blocking import Client

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

pytestmark = pytest.mark.slow


def rows(page: Page) -> list[str]:
    """Return the texts of the entries."""
    return [each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "[data-test=entries] > li")]


def test_history_page_is_filtered_by_form_and_url(page: Page, zk: Any) -> None:
    for path in ("/filter", "/filter/a", "/filter/b"):
        zk.create(path, b"")
    zk.delete("/filter/a")
    page.open("history/%2Ffilter")
    page.shows("created /filter")
    page.find("input[type=checkbox]").click()
    Select(page.find("select")).select_by_visible_text("deletions")
    page.click("Show")
    page.until(lambda: len(rows(page)) == 1 and "deleted /filter/a" in rows(page)[0])
    page.find("[data-test=entries] a:has(time)").click()
    page.until(lambda: len(rows(page)) >= 4)

    assert "deleted /filter/a" in page.find("[data-test=entries] [aria-current]").text
    assert page.find("input[name=since]").get_attribute("value")
    page.open("history/%2Ffilter%2Fnothing")
    page.shows("Nothing of it among the last", "older ends of sessions")


def test_history_page_requests_invalid_path_only_once(page: Page) -> None:
    page.hurry()
    page.open("history/no-slash")
    page.shows("400")
    page.driver.execute_script("performance.clearResourceTimings()")
    page.driver.execute_async_script("setTimeout(arguments[0], 8000)")  # longer than the usual interval of two seconds
    requests = page.driver.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")

    assert [each for each in requests if "api/history" in each] == []


def test_repeated_sets_collapse_and_pause_stops_page(page: Page, zk: Any) -> None:
    zk.create("/fold", b"")
    for number in range(150):
        zk.set("/fold", b"%d" % number)
    page.hurry()
    page.open("history/%2Ffold")
    page.shows("set /fold (3 B) 150 times, ", "created /fold")
    page.click("Pause")
    page.shows("Resume", "as of 20")
    zk.set("/fold", b"")
    page.driver.execute_async_script("setTimeout(arguments[0], 8000)")  # longer than the usual interval of two seconds
    assert "150 times" in page.text()
    page.click("Resume")
    page.shows("151 times")
    page.driver.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")[1].click()
    page.click("Show")
    page.until(lambda: len(rows(page)) == 100)
    page.click("Earlier")
    page.until(lambda: len(rows(page)) == 152)


def test_session_page_reads_log_files_on_request(page: Page, zk: Any) -> None:
    zk.create("/session-of-log", b"")
    page.open(f"sessions/{hex(zk.session_id)}")
    page.shows("created /session-of-log")
    page.click("Look in the log files")
    page.shows("No more transactions.")


def test_history_page_shows_six_changes_of_large_transaction(page: Page, zk: Any) -> None:
    transaction = zk.transaction()
    for number in range(9):
        transaction.create(f"/several{number}")
    transaction.commit()
    page.open("history/%2Fseveral7")
    page.shows("multi created /several7, created /several0, ", "created /several4 and 3 more by session")


def test_history_page_shows_since_when_history_is_complete(driver: Any) -> None:
    with running_daemon("--port", "0", "--admin-port", "0", "-Dzoolet.history=20") as process:
        port, url = process.port(), process.read_line(1).rpartition(" ")[2]
        with Client(f"127.0.0.1:{port}") as client:
            client.create("/gone", b"")
            client.delete("/gone")
            for _ in range(40):
                client.create("/many", sequential=True)
            page = Page(driver, url)
            page.open("history")
            page.shows("Complete since 20", "Before: only ends of sessions, deletions and changes of ACLs.")
