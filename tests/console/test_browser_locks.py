"""The console in a real browser: locks, deadlocks, sessions, charts, cluster members and servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from support.browser import Page
from support.remote_console import run_console

from zoolet.client.blocking import Client
from zoolet.testing import Cluster, Server

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.slow
LOCK_NODE: Final = "9c7e980a02c6499346ac9bf4e550501a__lock__"
HOSTILE_NAME: Final = "<img src=x onerror=document.title='stolen'>\u202e"


class BusyServer:
    """A server with ten locks, a ring of three clients, and sixty sessions."""

    def __init__(self, server: Server, clients: list[Client]) -> None:
        self.server = server
        self.clients = clients
        for number in range(10):
            self.ask(f"/locks/{number}", f"worker-{number}", number)
            for waiter in range(number % 3):
                self.ask(f"/locks/{number}", f"waiter-{number}.{waiter}", 20 + number + waiter)
        for number in range(3):
            self.ask(f"/ring/{'abc'[number]}", f"service-{number}", 40 + number)
        for number in range(3):
            self.ask(f"/ring/{'abc'[(number + 1) % 3]}", f"service-{number}", 40 + number)

    def ask(self, path: str, name: str, client: int) -> None:
        """Create a contender, which holds the lock if it is the first."""
        self.clients[0].ensure_path(path)
        self.clients[client].create(f"{path}/{LOCK_NODE}", name.encode(), ephemeral=True, sequential=True)

    def id(self, client: int) -> str:
        """Return the session id of a client."""
        return hex(self.clients[client].session_id)


@pytest.fixture(scope="module")
def busy_server() -> Iterator[BusyServer]:
    """The server of the tests in this module."""
    with ExitStack() as stack:
        server = stack.enter_context(Server(admin=True))
        yield BusyServer(server, [stack.enter_context(Client(server.hosts)) for _ in range(60)])


@pytest.fixture
def shown(driver: Any, busy_server: BusyServer) -> Page:
    """The console of the server, open in the browser."""
    driver.get("about:blank")
    driver.get_log("browser")
    assert busy_server.server.admin_url is not None
    return Page(driver, busy_server.server.admin_url)


def test_overview_counts_locks_and_links_longest_wait(shown: Page) -> None:
    shown.open()
    shown.shows("✕ Serving, with 1 deadlock", "Longest wait", "✕ 1 deadlock")
    facts = shown.find("dl.facts").text

    assert "Locks\n13\n" in facts
    assert "12 clients" in facts
    shown.find("dl.facts a[href='#/locks/%2Flocks%2F1']").click()
    shown.shows("1 lock, 1 client waits, the longest for", "waiter-1.0")
    assert shown.errors() == []


def test_locks_page_sorts_locks_by_longest_wait(shown: Page) -> None:
    shown.open("locks")
    shown.shows("13 locks, 12 clients wait")
    paths = [each.get_attribute("data-path") for each in shown.driver.find_elements(By.CSS_SELECTOR, "section.lock")]

    assert paths[:4] == ["/locks/1", "/locks/2", "/locks/4", "/locks/5"]
    assert paths[-4:] == ["/locks/0", "/locks/3", "/locks/6", "/locks/9"]
    line = shown.find("[data-path='/locks/2']").text
    assert re.search(
        r"waiter-2\.0 \(0x\w+ of [\d.:]+\) waits for [\d.]+ m?s since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line
    )


def test_locks_page_shows_clients_and_locks_of_deadlock(shown: Page) -> None:
    shown.open("locks")
    ring = shown.find("svg.circle")
    texts = shown.until(lambda: [each.text for each in ring.find_elements(By.TAG_NAME, "text")])

    for number in range(3):
        assert any(f"service-{number}" in text and "127.0.0.1:" in text for text in texts), texts
        assert any(f"/ring/{'abc'[number]}" in text for text in texts)
    assert "service-0 waits for /ring/b, which service-1 holds" in ring.get_attribute("aria-label")
    assert len(shown.driver.find_elements(By.CSS_SELECTOR, ".deadlock button.danger")) == 3


def test_session_page_lists_held_and_awaited_locks(shown: Page, busy_server: BusyServer) -> None:
    shown.open(f"sessions/{busy_server.id(40)}")
    shown.shows("In a deadlock", "Holds 1 lock", "Waits for 1 lock")
    holds, waits = shown.find("[data-test=holds]"), shown.find("[data-test=waits]")

    assert re.search(r"/ring/a lock as service-0 for .*, 1 client waits", holds.text)
    assert re.search(r"/ring/b lock, number 1 of 1 in line as service-0 for .*\nservice-1 ", waits.text)
    assert waits.find_elements(By.CSS_SELECTOR, "button.danger")
    waits.find_element(By.CSS_SELECTOR, f"a[href='#/sessions/{busy_server.id(41)}']").click()
    shown.until(lambda: "/ring/b lock as service-1" in shown.find("[data-test=holds]").text)
    shown.find("[data-test=holds] a").click()
    shown.shows("1 lock, 1 client waits")
    assert shown.errors() == []


def test_session_of_holder_in_deadlock_can_be_expired(driver: Any) -> None:
    with Server(admin=True) as server, Client(server.hosts) as one, Client(server.hosts) as two:
        busy_server = BusyServer.__new__(BusyServer)
        busy_server.clients = [one, two]
        for path, client in (("/a", 0), ("/b", 1), ("/b", 0), ("/a", 1)):
            busy_server.ask(path, f"client-{client}", client)
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        page.open("locks")
        page.find(".deadlock button[aria-label='Expire the session of client-1…']").click()
        page.shows(f"The session {busy_server.id(1)} of client-1 will end immediately")
        page.click("Expire the session")

        page.shows("✓ No deadlock")
        assert {owner for path, owner in owners(server) if path.startswith(("/a/", "/b/"))} == {one.session_id}
        page.driver.get("about:blank")


def test_list_of_locks_shows_five_waiters_per_lock(driver: Any) -> None:
    with Server(admin=True) as server, Client(server.hosts) as zk:
        busy_server = BusyServer.__new__(BusyServer)
        busy_server.clients = [zk]
        for number in range(8):
            busy_server.ask("/a", f"client-{number}", 0)
        busy_server.ask("/b", "client-0", 0)
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        page.open("locks")
        page.shows("client-5", "2 more are not shown.")
        assert "client-6" not in page.find("[data-path='/a']").text
        page.find("[data-path='/a'] h2 a").click()

        page.shows("client-7")
        assert "not shown" not in page.find("[data-path='/a']").text
        page.driver.get("about:blank")


def owners(server: Server) -> list[tuple[str, int]]:
    """Return the path and the owner of each ephemeral node."""
    return [(path, node.ephemeral_owner) for path, node in server.tree().items() if node.ephemeral_owner]


def test_hostile_client_names_are_shown_as_text(driver: Any) -> None:
    with Server(admin=True) as server, Client(server.hosts) as zk:
        busy_server = BusyServer.__new__(BusyServer)
        busy_server.clients = [zk]
        for _ in range(2):
            busy_server.ask("/hostile", HOSTILE_NAME, 0)
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        for place in ("locks", "sessions", f"sessions/{busy_server.id(0)}"):
            page.open(place)
            page.shows("<img src=x", "\\u{202e}")
            assert page.driver.title != "stolen"
        page.driver.get("about:blank")


def test_locks_page_shows_members_of_double_barrier_by_state(shown: Page, busy_server: BusyServer) -> None:
    zk = busy_server.clients[50]
    zk.create("/step/ready", b"", parents=True)
    zk.create("/step/9c7e980a02c6499346ac9bf4e550501a", b"late.42", ephemeral=True)
    shown.open("locks/%2Fstep")

    shown.shows("double barrier", "No round has started.", "1 waiting, the longest for", "late.42")
    zk.delete("/step", recursive=True)


# --- sessions ---


def test_click_on_heading_sorts_sessions(shown: Page, busy_server: BusyServer) -> None:
    busy_server.clients[0].ensure_path("/written")
    for number in range(50):
        busy_server.clients[33].set("/written", b"%d" % number)
    shown.open("sessions")
    shown.shows("60 sessions", "Connected since ▾", "worker-1")
    shown.driver.find_element(By.LINK_TEXT, "Writes in 10 min").click()

    shown.until(lambda: shown.find(".sessions .long li a").text == busy_server.id(33))
    assert shown.driver.current_url.endswith("#/sessions/by%20writes")
    assert "50" in shown.find(".sessions .long li").text
    shown.open()
    shown.driver.find_element(By.LINK_TEXT, "Which clients write most").click()
    shown.until(lambda: shown.find(".sessions .long li a").text == busy_server.id(33))
    assert shown.errors() == []


# --- charts, members, servers ---


def test_overview_charts_have_time_ranges_and_iso_times(shown: Page) -> None:
    shown.open()
    shown.until(lambda: len(shown.driver.find_elements(By.CSS_SELECTOR, ".charts canvas")) == 5)
    shown.until(lambda: re.search(r"Time:?\s*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown.find(".u-legend").text))
    for name, note in (("A day", True), ("10 minutes", False), ("An hour", False)):
        shown.click(name)
        shown.until(lambda note=note: ("the highest value of each minute" in shown.text()) is note)  # type: ignore[misc]
        shown.until(lambda: re.search(r"sessions:?\s*60", shown.text()))
    assert shown.errors() == []


def test_cluster_members_can_be_killed_and_isolated_on_page(driver: Any) -> None:
    with Cluster(3, admin=True) as cluster:
        late, other = [member.index for member in cluster.followers]
        assert cluster.admin_url is not None
        page = Page(driver, cluster.admin_url)
        page.open()
        for label, wanted in (
            (f"Lag 10 s: member {late}", "lags by 10 s"),
            (f"Kill: member {other}", "down"),
            (f"Start: member {other}", "follower"),
            (f"Isolate: member {late}", "the network is divided"),
        ):
            page.find(f"button[aria-label='{label}']").click()
            page.shows(wanted)
        page.find(f"button[aria-label='Catch up: member {late}']").click()
        page.click("Heal the network and all faults")
        page.shows("✓ Serving")
        assert [member.running for member in cluster] == [True] * 3
        page.driver.get("about:blank")


def test_console_of_several_servers_shows_state_of_each_server(driver: Any) -> None:
    with Server(config={"4lw.commands.whitelist": "*"}) as server, run_console(f"{server.hosts},127.0.0.1:1") as remote:
        page = Page(driver, remote.url)
        page.open()
        page.shows("! Serving, with problems in the cluster", "127.0.0.1:1 does not answer")
        rows = [row.text for row in page.driver.find_elements(By.CSS_SELECTOR, "[data-test=servers] tbody tr")]

        assert rows[0].startswith(f"{server.hosts} ✓ standalone")
        assert rows[1].startswith("127.0.0.1:1 ✕ does not answer")
        page.driver.get("about:blank")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 400)])
@pytest.mark.parametrize("view", ["overview", "sessions", "locks", "session"])
def test_views_with_many_locks_are_accessible(
    shown: Page, busy_server: BusyServer, view: str, scheme: str, width: int
) -> None:
    axe = Path(pytest.importorskip("axe_core_python").__file__).parent / "axe.min.js"
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    shown.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        shown.driver.get("about:blank")
        shown.open(f"sessions/{busy_server.id(40)}" if view == "session" else view)
        shown.shows("✓ live", "1 deadlock")
        shown.driver.execute_script(axe.read_text())
        result = shown.driver.execute_async_script("axe.run().then(arguments[0])")
        serious = [each for each in result["violations"] if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
        assert shown.driver.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        cut = "[...document.querySelectorAll('th, dt, h1, button')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
        assert shown.driver.execute_script(f"return {cut}.map((e) => e.outerHTML)") == []
    finally:
        shown.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
