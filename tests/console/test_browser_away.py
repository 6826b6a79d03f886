"""The console in a real browser while its server restarts, is silent or read-only, has a different clock, or has many
open pages.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium.webdriver.support.select import Select
from support.apache import free_port
from support.browser import TOKEN, Page
from support.daemon import RunningDaemon, running_daemon
from support.remote_console import run_console

from zoolet.client.blocking import Client
from zoolet.testing import Server

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")

pytestmark = pytest.mark.slow
LIVE_TEXT: Final = "✓ live"


@contextmanager
def daemon_at(port: int, token: str, folder: Path) -> Iterator[RunningDaemon]:
    """Run a daemon whose admin port and token are given."""
    (file := folder / "token").write_text(token)
    with running_daemon("--port", "0", "--admin-port", str(port), "--admin-token-file", str(file)) as process:
        process.port()
        yield process


@pytest.fixture
def tabs(driver: Any) -> Iterator[None]:
    """Close the pages that a test opens in addition to the first."""
    first = driver.current_window_handle
    yield
    for handle in driver.window_handles:
        if handle != first:
            driver.switch_to.window(handle)
            driver.close()
    driver.switch_to.window(first)


def test_seven_open_pages_update_live(page: Page, driver: Any, tabs: None) -> None:
    for _ in range(7):
        driver.switch_to.new_window("window")
        page.open()
        page.shows(LIVE_TEXT)
    for handle in driver.window_handles:
        driver.switch_to.window(handle)
        if driver.current_url.startswith("http"):
            driver.execute_script("performance.clearResourceTimings()")
            page.until(lambda: driver.execute_script("return performance.getEntriesByType('resource').length"))
            page.shows(LIVE_TEXT)


def test_page_survives_restart_with_different_token(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, f"http://127.0.0.1:{(port := free_port())}/")
    with daemon_at(port, TOKEN, tmp_path):
        page.open()
        page.click("Enter the token")
        page.give_token()
        page.shows(LIVE_TEXT, "Forget the token")
    page.shows("nothing heard from the server")
    with daemon_at(port, other := TOKEN[::-1], tmp_path):
        page.shows("wrong token", LIVE_TEXT)
        page.give_token(other)
        page.shows("Forget the token")
    driver.get("about:blank")


LATE_ABOUT_SCRIPT: Final = """
const real = window.fetch;
let failing = true;  // one overview, so that the page introduces itself again, still without a token
window.fetch = async (url, ...given) => {
  const what = String(url);
  if (failing && what.includes("api/overview")) {
    failing = false;
    throw new TypeError("the connection was lost");
  }
  const answer = await real(url, ...given);
  if (window.held || !what.includes("api/about")) return answer;
  await new Promise((release) => (window.held = release));
  const about = await answer.json();
  answer.json = async () => (setTimeout(() => (window.heard = true)), about);
  return answer;
};
"""


def test_late_reply_without_token_does_not_discard_new_token(page: Page) -> None:
    page.hurry()
    page.shows(LIVE_TEXT)
    page.driver.execute_script(LATE_ABOUT_SCRIPT)
    page.until(lambda: page.driver.execute_script("return Boolean(window.held)"))
    page.click("Enter the token")
    page.give_token()
    page.shows("Forget the token")
    page.driver.execute_script("held()")
    page.until(lambda: page.driver.execute_script("return window.heard"))
    page.shows("Forget the token")


def test_page_shows_silent_server_until_it_answers(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, f"http://127.0.0.1:{(port := free_port())}/")
    with daemon_at(port, TOKEN, tmp_path) as daemon:
        page.open()
        page.shows(LIVE_TEXT)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            page.shows("nothing heard from the server for", "! Not heard from")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        page.shows(LIVE_TEXT)
    driver.get("about:blank")


def test_ages_on_page_use_clock_of_server(driver: Any) -> None:
    with Server(admin=True, clock="manual") as server:
        server.advance(3600)
        server.populate({"/young": ""})
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        page.open("tree/%2Fyoung")
        clock = "The clock of the server is fast by 60 min, compared with the clock of this browser."
        page.shows(LIVE_TEXT, "Created")
        page.until(lambda: " s ago" in page.find(".facts").text or " ms ago" in page.find(".facts").text)
        assert page.find("[data-test=clock]").text.replace("\u00a0", " ") == clock
        driver.get("about:blank")


def test_console_reads_from_read_only_server(driver: Any) -> None:
    with Server() as server:
        server.populate({"/a": "one"})
        server.set_read_only(True)
        with run_console(server.hosts) as remote:
            page = Page(driver, remote.url)
            page.open("tree/%2Fa")
            page.shows("one", "✕ not ready")
            page.open()
            page.shows("✕ Not ready", "the server is read-only because it has no quorum")
            page.open("tree/%2Fa")
            page.click("Edit…")
            page.give_token(remote.token)
            page.find("textarea").send_keys("!")
            page.click("Save…")
            page.click("Set the data")
            page.shows("409")
            driver.get("about:blank")


def test_page_shows_reason_for_refused_sort_order_of_children(driver: Any) -> None:
    with Server() as server:
        server.populate({f"/wide/{number}": b"" for number in range(10_001)})
        with run_console(server.hosts) as remote:
            page = Page(driver, remote.url)
            page.open("tree/%2Fwide")
            page.shows("10,001 children of /wide")
            for order, text in (("last change", "cannot sort by time: that reads every child"), ("name", "10000")):
                Select(page.find("section[aria-label=Children] select")).select_by_visible_text(order)
                page.shows(text)
            assert "cannot sort" not in page.text()
            driver.get("about:blank")


def test_edited_text_survives_rejected_token(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, f"http://127.0.0.1:{(port := free_port())}/")
    with daemon_at(port, TOKEN, tmp_path):
        page.open("tree/%2Fzookeeper")
        page.click("Edit…")
        page.give_token()
        page.find("textarea").send_keys("typed")
    with daemon_at(port, TOKEN[::-1], tmp_path):
        page.shows("wrong token")
        page.click("Cancel")
        assert page.find("textarea").get_attribute("value") == "typed"
    driver.get("about:blank")


def test_ipv6_addresses_have_same_form_on_each_page(driver: Any) -> None:
    with Server("::1") as server, Client(server.hosts) as zk:
        with run_console(server.hosts) as remote:
            page = Page(driver, remote.url)
            page.open(f"sessions/{zk.session_id:#x}")
            page.shows("Client", "[::1]:")
            assert "0:0:0:0:0:0:0:1" not in page.text()
            driver.get("about:blank")
