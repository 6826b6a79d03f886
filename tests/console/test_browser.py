"""The console in a real browser: each view, live updates, many nodes and sessions, hostile names, the token, keyboard,
and accessibility. Screenshots for the documentation are made here (ZOOLET_SCREENSHOTS=1).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.apache import skip_unless_required
from support.daemon import Running, running

from zoolet.client.blocking import Client
from zoolet.testing import Cluster, Server, hold

pytest.importorskip("h11")
webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.slow
TOKEN: Final = "0123456789abcdef"
SCREENSHOTS: Final = Path(__file__).parents[2] / "docs" / "images"
HOSTILE: Final = [
    "<script>document.title='stolen'",
    "\"><img src=x onerror=document.title='stolen'>",
    "\u202egnp.exe",
    "a\u200bb",
    "${7*7}",
    "%2e%2e",
    "#?&=",
]


class Page:
    """A browser that shows a console."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, place: str = "overview") -> Page:
        """Show a view."""
        if self.driver.current_url.partition("#")[0] != self.url:
            self.driver.get(self.url)
        self.driver.execute_script("location.hash = arguments[0]", f"#/{place}")
        return self

    def text(self) -> str:
        """Return the text of the page."""
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def until(self, condition: Callable[[], Any], seconds: float = 10.0) -> Any:
        """Wait until something is so, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if result := condition():
                    return result
            except Exception as error:
                if type(error).__name__ not in ("StaleElementReferenceException", "NoSuchElementException"):
                    raise
            assert time.monotonic() < deadline, f"not in time; the page shows {self.text()[:2000]!r}"
            time.sleep(0.02)

    def shows(self, *texts: str, seconds: float = 10.0) -> None:
        """Wait until the page has texts."""
        self.until(lambda: all(text in self.text() for text in texts), seconds)

    def find(self, selector: str) -> Any:
        """Wait for an element."""
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector))

    def click(self, text: str) -> None:
        """Press the button with a text."""
        self.until(lambda: self._button(text)).click()

    def _button(self, text: str) -> Any:
        found = [each for each in self.driver.find_elements(By.TAG_NAME, "button") if each.text == text]
        return found[-1] if found else None

    def give_token(self, token: str = TOKEN) -> None:
        """Type the token into its dialog."""
        self.find("dialog input[type=password]").send_keys(token)
        self.click("Use it")

    def errors(self) -> list[str]:
        """Return what the browser's console has logged as errors since the last look."""
        logged = self.driver.get_log("browser")
        refused = re.compile(r"/console/api/\S* - .*status of 4\d\d")
        return [line["message"] for line in logged if line["level"] == "SEVERE" and not refused.search(line["message"])]

    def screenshot(self, name: str) -> None:
        """Keep a picture for the documentation."""
        if os.environ.get("ZOOLET_SCREENSHOTS"):
            SCREENSHOTS.mkdir(exist_ok=True)
            self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser."""
    browser, control = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or control is None:
        skip_unless_required("no Chromium (apt-get install chromium chromium-driver)")
        return
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(control))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """A daemon with a data directory and the console; its port, and the URL."""
    folder = tmp_path_factory.mktemp("console")
    file = folder / "token"
    file.write_text(TOKEN)
    options = ("--admin-port", "0", "--admin-token-file", str(file), "--data-dir", str(folder / "data"))
    with running("--port", "0", *options, "-D4lw.commands.whitelist=*") as process:
        yield process.port(), _admin(process)


def _admin(process: Running) -> str:
    line = process.read_line(1)
    assert line.startswith("zoolet admin on http://"), line
    return line.rpartition(" ")[2]


@pytest.fixture
def page(driver: Any, daemon: tuple[int, str]) -> Iterator[Page]:
    """The console of the daemon, without a token; no test may leave an error in the browser's console."""
    driver.get("about:blank")
    driver.get_log("browser")
    page = Page(driver, daemon[1])
    driver.get(page.url)
    driver.execute_script("sessionStorage.clear()")
    driver.get("about:blank")
    yield page
    assert page.errors() == []


@pytest.fixture
def zk(daemon: tuple[int, str]) -> Iterator[Any]:
    """A client of the daemon."""
    with Client(f"127.0.0.1:{daemon[0]}") as client:
        yield client


# --- the views ---


def test_the_overview_lives(page: Page, zk: Any) -> None:
    page.open()
    page.shows("✓ Serving", "Requests and writes a second", "Disk of")
    before = page.find("dl.facts").text
    zk.create("/live", b"")
    started = time.monotonic()
    page.until(lambda: page.find("dl.facts").text != before, 3.0)

    assert time.monotonic() - started < 2.0
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".charts canvas")) == 5
    assert "% used" in page.find("[data-test=disk]").text
    page.driver.execute_script("document.querySelector('[data-test=disk] bdi').textContent = '/var/lib/zoolet'")
    page.screenshot("console-overview")


def test_a_node_is_shown_with_its_data_owner_and_history(page: Page, zk: Any) -> None:
    zk.create("/app", b"", container=False)
    zk.create("/app/config", b'{"retries": 3, "hosts": ["a", "b"]}')
    zk.create("/app/me", b"me", ephemeral=True)
    page.open("tree/%2Fapp")
    page.shows("2 children", "config", "me", "⏱ ephemeral")
    page.open("tree/%2Fapp%2Fconfig")
    page.shows('"retries": 3', "everyone: everything", "Version", "created /app/config")
    page.click("hex")
    page.shows("00000000  7b 22")
    page.screenshot("console-tree")
    page.open("tree/%2Fapp%2Fme")
    page.shows("Owner", hex(zk.session_id))


def test_why_a_node_is_gone(page: Page, daemon: tuple[int, str]) -> None:
    with Client(f"127.0.0.1:{daemon[0]}") as other:
        other.create("/services", b"")
        other.create("/services/a", b"", ephemeral=True)
    page.open("tree/%2Fservices%2Fa")

    page.shows("There is no node /services/a", "Why is it gone?", "was closed by its client")


def test_sessions_and_one_of_them(page: Page, zk: Any) -> None:
    zk.create("/mine", b"", ephemeral=True)
    page.open("sessions")
    page.shows(hex(zk.session_id), "timeout", "requests")
    page.screenshot("console-sessions")
    page.open(f"sessions/{hex(zk.session_id)}")
    page.shows("Last heard", "/mine", "● session opened")


def test_locks_show_holders_waiters_in_order_and_deadlocks(page: Page, daemon: tuple[int, str]) -> None:
    host = f"127.0.0.1:{daemon[0]}"
    with Client(host) as one, Client(host) as two:
        one.create("/locks", b"")
        first, second = one.lock("/locks/p", data=b"one"), two.lock("/locks/q", data=b"two")
        with first, second:
            for client, path, data in ((two, "/locks/p", b"two"), (one, "/locks/q", b"one")):
                client.create(path + "/9c7e980a02c6499346ac9bf4e550501a__lock__", data, ephemeral=True, sequential=True)
            page.open("locks")
            page.shows("A deadlock", "one", "two", "waits for", "token")
            lock = page.find("[data-path='/locks/p']")
            assert "one" in lock.find_element(By.CSS_SELECTOR, ".holders").text
            assert "two" in lock.find_element(By.CSS_SELECTOR, ".waiters").text
            page.screenshot("console-locks")
    page.shows("No deadlock")


def test_history_is_of_everything_a_path_or_a_session(page: Page, zk: Any) -> None:
    zk.create("/kept", b"12345")
    zk.delete("/kept")
    page.open("history/%2Fkept")
    page.shows("created /kept (5 B)", "deleted /kept", hex(zk.session_id))
    page.open(f"history/{hex(zk.session_id)}")
    page.shows("● session opened", "/kept")
    page.screenshot("console-history")


# --- hostile names and data, and many of them ---


def test_names_and_data_are_never_markup(page: Page, zk: Any) -> None:
    zk.create("/hostile", b"")
    for name in HOSTILE:
        zk.create(f"/hostile/{name}", name.encode())
    page.open("tree/%2Fhostile")
    page.shows(f"{len(HOSTILE)} children", "<script>document.title='stolen'", "\\u{202e}gnp.exe", "${7*7}")
    for name in HOSTILE:
        page.driver.execute_script("location.hash = '#/tree/' + encodeURIComponent(arguments[0])", f"/hostile/{name}")
        page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "[data-test=data]"))
        assert "stolen" != page.driver.title
    page.open("history")
    page.shows("\\u{202e}gnp.exe")


def test_data_of_every_kind(page: Page, zk: Any) -> None:
    zk.create("/kinds", b"")
    for name, data in (("large", b"x" * 1_000_000), ("bytes", bytes(range(256))), ("msgpack", b"\x81\xa1a\x01")):
        zk.create(f"/kinds/{name}", data)
    page.open("tree/%2Fkinds%2Flarge")
    page.shows("977 KB, the first 64 KB of them")
    page.click("Show all")
    page.until(lambda: len(page.find("[data-test=data]").get_attribute("textContent")) == 1_000_000)
    page.open("tree/%2Fkinds%2Fbytes")
    page.shows("00000010  10 11 12")
    page.open("tree/%2Fkinds%2Fmsgpack")
    page.shows('"a": 1')


def test_100_000_children_scroll(page: Page, zk: Any) -> None:
    zk.create("/many", b"")
    for start in range(0, 100_000, 5000):
        with zk.transaction() as transaction:
            for number in range(start, start + 5000):
                transaction.create(f"/many/n{number:06}", b"")
    page.open("tree/%2Fmany")
    page.shows("100,000 children", "n000000")
    started = time.monotonic()
    page.driver.execute_script("document.querySelector('.long').scrollTop = 50000 * 28")
    page.shows("n050000", seconds=3.0)

    assert time.monotonic() - started < 2.0
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".long li")) < 100
    page.open("tree/%2F")
    page.find("#search").send_keys("n09999?" + Keys.ENTER)
    page.shows("10 found among")


# --- the token ---


def test_a_change_needs_the_token_is_asked_once_and_uses_versions(page: Page, zk: Any) -> None:
    zk.create("/edit", b"before")
    page.open("tree/%2Fedit")
    page.click("Edit…")
    page.give_token("wrong-token-0123456789")
    page.shows("the token is wrong")
    page.give_token()
    area = page.find("textarea")  # what was to be done goes on
    area.send_keys(Keys.CONTROL + "a" + Keys.NULL + "after")
    page.click("Save…")
    page.shows("if nobody has changed it since version 0")
    zk.set("/edit", b"meanwhile")
    page.click("Set the data")
    page.shows("409")
    assert zk.get("/edit")[0] == b"meanwhile"
    page.click("Cancel")
    page.shows("Somebody has changed it meanwhile")
    assert page.find("textarea").get_attribute("value") == "after"
    page.click("Cancel")
    page.shows("meanwhile")
    page.click("Delete…")
    page.click("Delete the node")
    page.until(lambda: zk.exists("/edit") is None)
    page.open("history/%2Fedit")
    page.shows("deleted /edit", "by a person, in the console")


def test_a_session_is_expired_by_a_person(page: Page, daemon: tuple[int, str]) -> None:
    with Client(f"127.0.0.1:{daemon[0]}") as other:
        session = other.session_id
        other.create("/doomed", b"", ephemeral=True)
        page.open(f"sessions/{hex(session)}")
        page.click("Expire…")
        page.give_token()
        page.shows("Its 1 ephemeral node is deleted")
        page.click("Expire the session")
        page.shows("This session is not alive.", "✕ session expired")
        page.screenshot("console-expired")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({}, 401),
    ],
)
def test_what_another_page_sends_is_refused(daemon: tuple[int, str], headers: dict[str, str], status: int) -> None:
    body = json.dumps({"path": "/forged", "base64": ""}).encode()
    request = urllib.request.Request(f"{daemon[1]}console/api/change/create", body, headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5)

    assert caught.value.code == status
    caught.value.close()


# --- everybody can use it ---


def test_keys_lead_everywhere(page: Page, zk: Any) -> None:
    page.open()
    page.shows("✓ Serving")
    body = page.driver.find_element(By.TAG_NAME, "body")
    for key, title in (("2", "Tree"), ("3", "Sessions"), ("4", "Locks"), ("5", "History"), ("1", "Overview")):
        body.send_keys(key)
        page.until(lambda title=title: page.find("h1").text == title)  # type: ignore[misc]
    body.send_keys("2")
    page.until(lambda: page.find("h1").text == "Tree")
    body.send_keys("/")
    assert page.driver.switch_to.active_element.get_attribute("id") == "search"
    page.driver.switch_to.active_element.send_keys("12/")
    assert page.find("#search").get_attribute("value") == "12/"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 360)])
@pytest.mark.parametrize("view", ["overview", "tree/%2F", "sessions", "locks", "history"])
def test_axe_has_no_serious_finding(page: Page, zk: Any, view: str, scheme: str, width: int) -> None:
    axe = Path(pytest.importorskip("axe_core_python").__file__).parent / "axe.min.js"
    page.driver.set_window_size(width, 1000)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page.open(view)
        page.shows("✓ live")
        page.driver.execute_script(axe.read_text())
        result = page.driver.execute_async_script("axe.run().then(arguments[0])")
        serious = [
            (each["id"], each["nodes"][0]["html"], each["nodes"][0]["failureSummary"])
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        wide = page.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, "it has to be scrolled sideways"
    finally:
        page.driver.set_window_size(1300, 1000)
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# --- test servers ---


def test_faults_are_set_hit_and_released_from_the_page(driver: Any) -> None:
    with Server(admin=True, clock="manual") as server, Client(server.hosts) as zk:
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        with server.fault(hold(), "create", "/held"):
            page.open("tests")
            page.shows("fault(hold(), op='create', path='/held')", "0 hit")
            creating = threading.Thread(target=zk.create, args=("/held", b""))
            creating.start()
            page.shows("1 hit")
            assert not server.tree("/held")
            page.click("Release")
            creating.join(10)
            assert server.tree("/held")
        page.click("Take a snapshot")
        page.shows("✓ snapshot taken")
        zk.create("/after", b"")
        page.until(lambda: page.driver.find_elements(By.XPATH, "//button[starts-with(., 'Restore that')]"))[0].click()
        page.until(lambda: zk.exists("/after") is None)
        page.click("Set the fault")
        page.shows("fault(lose_reply())")
        page.screenshot("console-tests")
        page.click("Heal everything")
        page.until(lambda: "fault(lose_reply())" not in page.text())
        page.open("overview")
        page.shows("✓ Serving")
    assert page.errors() == [] or all("ERR_CONNECTION" in line for line in page.errors())


def test_a_cluster_is_shown_member_by_member(page: Page) -> None:
    with Cluster(3, admin=True) as cluster:
        late = cluster.followers[0]
        cluster.populate({"/a": b"old"})
        cluster.lag(late.index, 1000)
        cluster.set("/a", b"new")
        assert cluster.admin_url is not None
        page.url = cluster.admin_url
        page.open()
        page.shows("Members", f"{late.index} follower", "1 transaction")
        page.find(f"[data-test=members] a[href='?member={late.index}']").click()
        page.until(lambda: page.driver.current_url.partition("#")[0].endswith(f"?member={late.index}"))
        page.shows("follower, up for")

        page.driver.execute_script("location.hash = '#/tree//a'")

        page.shows("old")
        page.driver.get("about:blank")
