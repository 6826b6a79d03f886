"""The console in a real browser: each view, live updates, many nodes and sessions, hostile names, the token, keyboard,
and accessibility. With ZOOLET_SCREENSHOTS=1 it takes the screenshots for the documentation.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from support.browser import Page
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client
from zoolet.protocol.errors import ZooKeeperError
from zoolet.testing import Cluster, Server, hold, lose_reply

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

pytestmark = pytest.mark.slow
HOSTILE_NAMES: Final = [
    "<script>document.title='stolen'",
    "\"><img src=x onerror=document.title='stolen'>",
    "\u202egnp.exe",
    "a\u200bb",
    "${7*7}",
    "%2e%2e",
    "#?&=",
]


# --- the views ---


def test_overview_page_updates_live(page: Page, zk: Any) -> None:
    page.open()
    page.shows("✓ Serving", "Requests per second", "Disk of")
    before = page.find("dl.facts").text
    zk.create("/live", b"")
    page.until(lambda: page.find("dl.facts").text != before)

    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".charts canvas")) == 5
    assert "% used" in page.find("[data-test=disk]").text
    page.driver.execute_script("document.querySelector('[data-test=disk] bdi').textContent = '/var/lib/zoolet'")
    page.screenshot("console-overview")


def test_node_is_shown_with_data_owner_and_history(page: Page, zk: Any) -> None:
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


def test_page_of_missing_node_explains_its_deletion(page: Page, daemon: tuple[int, str]) -> None:
    with Client(f"127.0.0.1:{daemon[0]}") as other:
        other.create("/services", b"")
        other.create("/services/a", b"", ephemeral=True)
    page.open("tree/%2Fservices%2Fa")

    page.shows("There is no node /services/a", "Why is it gone?", "was closed by its client")


def test_sessions_and_session_page_are_shown(page: Page, zk: Any) -> None:
    zk.create("/mine", b"", ephemeral=True)
    page.open("sessions")
    page.shows(hex(zk.session_id), "Last heard (timeout)", "Requests")
    page.screenshot("console-sessions")
    page.open(f"sessions/{hex(zk.session_id)}")
    page.shows("Last heard", "/mine", "● session opened")


def test_session_list_updates_and_finds_names(page: Page, daemon: tuple[int, str], zk: Any) -> None:
    page.open("sessions")
    page.shows(hex(zk.session_id))
    with Client(f"127.0.0.1:{daemon[0]}") as late, late.lock("/named", data=b"billing-7"):
        page.shows(hex(late.session_id))
        page.find("#search").send_keys("billing")
        page.shows("1 session")
        page.until(lambda: "billing-7" in page.find(".sessions .long").text)


def test_locks_show_holders_waiters_and_deadlocks(page: Page, daemon: tuple[int, str]) -> None:
    host = f"127.0.0.1:{daemon[0]}"
    with Client(host) as one, Client(host) as two:
        one.create("/locks", b"")
        first, second = one.lock("/locks/p", data=b"one"), two.lock("/locks/q", data=b"two")
        with first as held, second:
            for client, path, data in ((two, "/locks/p", b"two"), (one, "/locks/q", b"one")):
                client.create(path + "/9c7e980a02c6499346ac9bf4e550501a__lock__", data, ephemeral=True, sequential=True)
            page.open("locks")
            czxid = held.czxid
            page.shows("A deadlock", "one", "two", "waits for", "holds it for", f"czxid {czxid} ({hex(czxid)})")
            lock = page.find("[data-path='/locks/p']")
            assert "one" in lock.find_element(By.CSS_SELECTOR, ".holders").text
            assert "two" in lock.find_element(By.CSS_SELECTOR, ".waiters").text
            page.screenshot("console-locks")
            page.open("overview")
            page.shows("✕ Serving, with 1 deadlock")
            with one.lock("/locks/pp", data=b"other"):
                page.open("locks/%2Flocks%2Fpp")
                page.shows("✓ No deadlock here", "1 lock, 0 clients wait")
            page.open("locks/%2Flocks%2Fp")
            page.shows("✕ A deadlock", "1 lock, 1 client waits")
            page.open("locks")
    page.shows("No deadlock")


def test_history_can_be_limited_to_path_or_session(page: Page, zk: Any) -> None:
    zk.create("/kept", b"12345")
    zk.delete("/kept")
    page.open("history/%2Fkept")
    page.shows("created /kept (5 B)", "deleted /kept", hex(zk.session_id))
    page.open(f"history/{hex(zk.session_id)}")
    page.shows("● session opened", "/kept")
    page.screenshot("console-history")


# --- hostile names and data, and many of them ---


def test_names_and_data_are_never_rendered_as_markup(page: Page, zk: Any) -> None:
    zk.create("/hostile", b"")
    for name in HOSTILE_NAMES:
        zk.create(f"/hostile/{name}", name.encode())
    page.open("tree/%2Fhostile")
    page.shows(f"{len(HOSTILE_NAMES)} children", "<script>document.title='stolen'", "\\u{202e}gnp.exe", "${7*7}")
    for name in HOSTILE_NAMES:
        page.driver.execute_script("location.hash = '#/tree/' + encodeURIComponent(arguments[0])", f"/hostile/{name}")
        page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "[data-test=data]"))
        assert "stolen" != page.driver.title
    page.open("history")
    page.shows("\\u{202e}gnp.exe")


def test_large_binary_and_msgpack_data_are_shown(page: Page, zk: Any) -> None:
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


def test_list_of_100_000_children_scrolls(page: Page, zk: Any) -> None:
    zk.create("/many", b"")
    for start in range(0, 100_000, 5000):
        with zk.transaction() as transaction:
            for number in range(start, start + 5000):
                transaction.create(f"/many/n{number:06}", b"")
    page.open("tree/%2Fmany")
    page.shows("100,000 children", "n000000")
    page.driver.execute_script("document.querySelector('.long').scrollTop = 50000 * 28")
    page.shows("n050000")

    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".long li")) < 100
    page.open("tree/%2F")
    page.find("#search").send_keys("n09999?" + Keys.ENTER)
    page.shows("10 found among")


def test_selected_search_result_is_scrolled_into_view(page: Page, zk: Any) -> None:
    zk.create("/users", b"")
    with zk.transaction() as transaction:
        for number in range(400):
            transaction.create(f"/users/user-{number:03}", b"")
    page.open("tree/%2Fusers")
    page.find("#search").send_keys("user-*" + Keys.ENTER)
    page.shows("400 found among")
    page.driver.find_elements(By.CSS_SELECTOR, "[data-test=found] a")[300].click()
    page.until(lambda: page.driver.find_elements(By.XPATH, "//h2[. = '/users/user-300']"))

    top = page.driver.execute_script(
        "return document.querySelector('section[aria-label=Node] h2').getBoundingClientRect().top"
    )
    height = page.driver.execute_script("return innerHeight")
    assert 0 <= top < height
    page.find("[data-test=found] summary").click()
    page.until(lambda: page.find("[data-test=found] li").is_displayed())


def test_failing_view_does_not_affect_other_views(page: Page) -> None:
    page.open("tests")
    page.shows("This server has no such view")
    page.open("history/0x1")
    page.shows("History")
    page.driver.execute_script(
        "Object.defineProperty(Number.prototype, 'toLocaleString', {get() { throw Error('broken') }})"
    )
    page.open("overview")
    page.shows("This view has failed: broken")
    page.driver.execute_script(
        "delete Number.prototype.toLocaleString; Number.prototype.toLocaleString = function() { return String(this) }"
    )
    page.open("locks")
    page.shows("lock")
    page.open("overview")
    page.shows("Serving")
    assert all("broken" in line for line in page.errors())


# --- the token ---


def test_data_change_needs_token_once_and_detects_other_change(page: Page, zk: Any) -> None:
    zk.create("/edit", b"before")
    page.open("tree/%2Fedit")
    page.click("Edit…")
    page.give_token("wrong-token-0123456789")
    page.shows("wrong token")
    page.give_token()
    area = page.find("textarea")  # after the token is accepted, the dialog of the change continues
    area.send_keys(Keys.CONTROL + "a" + Keys.NULL + "after")
    page.click("Save…")
    page.shows("if nobody has changed it since version 0")
    zk.set("/edit", b"meanwhile")
    page.click("Set the data")
    page.shows("409")
    assert zk.get("/edit")[0] == b"meanwhile"
    page.click("Cancel")
    page.shows("Another client has changed the data: its version is 1 now")
    assert page.find("textarea").get_attribute("value") == "after"
    page.click("Cancel")
    page.shows("meanwhile")
    page.click("Delete…")
    page.click("Delete the node")
    # After the deletion, the page of the parent is shown.
    page.until(lambda: page.driver.current_url.endswith("#/tree/%2F"))
    assert zk.exists("/edit") is None
    page.open("history/%2Fedit")
    page.shows("deleted /edit", "in the console")


def test_user_can_expire_session_on_its_page(page: Page, daemon: tuple[int, str]) -> None:
    with Client(f"127.0.0.1:{daemon[0]}") as other:
        session = other.session_id
        other.create("/doomed", b"", ephemeral=True)
        page.open(f"sessions/{hex(session)}")
        page.click("Expire…")
        page.give_token()
        page.shows("Its 1 ephemeral node will be deleted")
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
def test_request_from_foreign_page_is_refused(daemon: tuple[int, str], headers: dict[str, str], status: int) -> None:
    body = json.dumps({"path": "/forged", "base64": ""}).encode()
    request = urllib.request.Request(f"{daemon[1]}console/api/change/create", body, headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=DEADLINE_S)

    assert caught.value.code == status
    caught.value.close()


# --- accessibility ---


def test_number_keys_open_views_and_slash_key_focuses_search(page: Page, zk: Any) -> None:
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
@pytest.mark.parametrize(
    "view",
    ["overview", "tree/%2F", "tree/%2Fzookeeper%2Fconfig", "sessions", "locks", "history", "history/?kind=delete&at=0"],
)
def test_views_have_no_serious_accessibility_problem(page: Page, zk: Any, view: str, scheme: str, width: int) -> None:
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


def test_faults_are_set_hit_and_released_on_page(driver: Any) -> None:
    with Server(admin=True, clock="manual") as server, Client(server.hosts) as zk:
        assert server.admin_url is not None
        page = Page(driver, server.admin_url)
        with server.fault(hold(), "create", "/held"):
            page.open("tests")
            page.shows("fault(hold(), op='create', path='/held')", "0 hit")
            creating = threading.Thread(target=zk.create, args=("/held", b""))
            creating.start()
            page.shows("1 hit", "● waits", f"{zk.session_id:#x} create /held, by", "for 0.0 s")
            assert not server.tree("/held")
            page.click("Release")
            creating.join(DEADLINE_S)
            assert server.tree("/held")
        page.click("Take a snapshot")
        page.shows("✓ snapshot taken")
        zk.create("/after", b"")
        page.until(lambda: page.driver.find_elements(By.XPATH, "//button[starts-with(., 'Restore that')]"))[0].click()
        page.until(lambda: zk.exists("/after") is None)
        with server.fault(hold(), "setData", client=zk):
            setting = threading.Thread(target=zk.set, args=("/held", b"1"))
            setting.start()
            page.shows("Held or delayed requests", "waits", f"client={zk.session_id:#x}", "setData /held, by")
            page.click("Release")
            setting.join(DEADLINE_S)
        page.click("Set the fault")
        page.shows("fault(lose_reply())")
        page.screenshot("console-tests")
        page.click("Heal everything")
        page.until(lambda: "fault(lose_reply())" not in page.text())
        Select(page.find("form select")).select_by_value("error")
        page.find("input[placeholder=NO_NODE]").send_keys("NO_AUTH")
        page.click("Set the fault")
        page.shows("fault(error(NO_AUTH))")
        page.click("Heal everything")
        page.until(lambda: "fault(error(NO_AUTH))" not in page.text())
        with server.fault(lose_reply(), "create", "/lost"), contextlib.suppress(ZooKeeperError):
            zk.create("/lost", b"")
        row = page.until(
            lambda: next(
                (
                    row
                    for row in page.driver.find_elements(By.CSS_SELECTOR, "[data-test=ops] tbody tr")
                    if "create /lost" in row.text
                ),
                None,
            )
        )
        assert re.match(r"\d\d:\d\d:\d\d ✕ no reply by lose_reply\(\) create /lost", row.text)
        assert hex(zk.session_id) in row.text
        assert " ping " not in page.find("[data-test=ops]").text
        page.open("overview")
        page.shows("✓ Serving")
    assert all("ERR_CONNECTION" in line for line in page.errors())


def test_cluster_page_shows_each_member(page: Page) -> None:
    with Cluster(3, admin=True) as cluster:
        late = cluster.followers[0]
        cluster.populate({"/a": b"old"})
        cluster.lag(late.index, 1000)
        cluster.set("/a", b"new")
        assert cluster.admin_url is not None
        page.url = cluster.admin_url
        page.open()
        page.shows(
            "Members",
            f"{late.index} follower",
            "1 transaction",
            "! Serving, with problems in the cluster",
            "behind by 1 transaction, lags by 1000 s",
        )
        assert "good" not in page.find("[data-test=health]").get_attribute("class")
        page.find(f"[data-test=members] a[href='?member={late.index}']").click()
        page.until(lambda: page.driver.current_url.partition("#")[0].endswith(f"?member={late.index}"))
        page.shows("follower, up for")

        page.driver.execute_script("location.hash = '#/tree//a'")

        page.shows("old")

        cluster.partition([0, 1], [2])
        page.driver.execute_script("location.hash = '#/overview'")

        page.shows("the network is divided: 0 and 1, 2")
        page.driver.get("about:blank")
