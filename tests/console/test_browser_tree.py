"""The tree in a real browser: siblings, orders, typed paths, exports, and deletion of a subtree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.browser import Page

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from zoolet.client.blocking import Client

pytestmark = pytest.mark.slow


def names(page: Page) -> list[str]:
    """Return the names in the list of children."""
    return [each.text for each in page.driver.find_elements(By.CSS_SELECTOR, ".long li > a")]


def test_leaf_is_shown_among_its_siblings(page: Page, zk: Any) -> None:
    zk.create("/wide", b"")
    with zk.transaction() as transaction:
        for number in range(2_000):
            transaction.create(f"/wide/n{number:04}", b"")
    page.open("tree/%2Fwide%2Fn1500")
    page.shows("2,000 children of /wide", "n1500", "Version")
    page.until(lambda: page.driver.find_element(By.CSS_SELECTOR, ".long [aria-current]").text == "n1500")
    page.driver.find_element(By.LINK_TEXT, "n1501").click()
    page.until(lambda: page.driver.find_element(By.CSS_SELECTOR, ".long [aria-current]").text == "n1501")
    page.until(lambda: page.driver.find_elements(By.XPATH, "//h2[. = '/wide/n1501']"))

    assert "n1500" in names(page)


def test_children_are_sorted_by_name_time_or_size(page: Page, zk: Any) -> None:
    zk.create("/sorted", b"")
    for name, size in (("b", 5), ("a", 9), ("c", 1)):
        zk.create(f"/sorted/{name}", b"x" * size)
    zk.set("/sorted/b", b"xxxxx")
    page.open("tree/%2Fsorted")
    page.until(lambda: names(page) == ["a", "b", "c"])
    for sort, expected in (("last change", "bca"), ("size", "abc"), ("name", "abc")):
        Select(page.find("section[aria-label=Children] select")).select_by_visible_text(sort)
        page.until(lambda expected=expected: names(page) == list(expected))  # type: ignore[misc]


def test_typed_path_opens_node(page: Page, zk: Any) -> None:
    zk.create("/typed", b"")
    zk.create("/typed/deep", b"found")
    page.open("tree/%2F")
    page.find("#path").send_keys(Keys.CONTROL + "a" + Keys.NULL + "typed/deep/" + Keys.ENTER)
    page.shows("found", "1 child of /typed")

    assert page.find("#path").get_attribute("value") == "/typed/deep"


def test_subtree_deletion_warns_of_held_locks_in_it(page: Page, daemon: tuple[int, str], zk: Any) -> None:
    zk.create("/doomed-tree", b"")
    zk.create("/doomed-tree/a", b"12345")
    with Client(f"127.0.0.1:{daemon[0]}") as other, other.lock("/doomed-tree/lock", on_lost="flag"):
        page.open("tree/%2Fdoomed-tree")
        page.shows("2 children of /doomed-tree")
        page.click("Delete…")
        page.give_token()
        page.shows("4 nodes with", "; 1 is ephemeral", "1 lock is held there", "/doomed-tree/lock")
        page.click("Cancel")
        assert zk.exists("/doomed-tree/a") is not None
        page.click("Delete…")
        page.click("Delete 4 nodes")
        page.until(lambda: zk.exists("/doomed-tree") is None)
    page.shows("zookeeper")  # after the deletion, the children of the root are shown


def test_subtree_can_be_exported_as_file_on_page(page: Page, zk: Any, tmp_path: Path) -> None:
    zk.create("/exported", b"top")
    zk.create("/exported/<b>", b"\xff")
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.open("tree/%2Fexported")
    page.shows("1 child of /exported")
    page.click("Export as JSON")
    page.give_token()
    file = tmp_path / "exported.json"
    page.until(file.exists)

    nodes = json.loads(file.read_text())
    assert nodes == {"/exported": "top", "/exported/<b>": {"$base64": "/w=="}}


def test_dialogs_for_new_child_and_acl_can_be_cancelled(page: Page, zk: Any) -> None:
    zk.create("/cancelled", b"")
    page.open("tree/%2Fcancelled")
    page.click("New child…")
    page.shows("Only users with the token can make changes.")
    page.give_token()
    page.shows("Create…")
    page.click("Cancel")
    page.shows("New child…")
    page.click("Change the ACL…")
    page.shows("Change…")
    page.click("Cancel")
    page.shows("Change the ACL…")

    assert zk.exists("/cancelled").numChildren == 0


def test_search_results_close_when_path_changes(page: Page, zk: Any) -> None:
    zk.create("/searched", b"")
    page.open("tree/%2F")
    page.find("#search").send_keys("searched" + Keys.ENTER)
    page.shows("1 found among")
    assert page.find("[data-test=found]").get_attribute("open")
    page.find("#path").send_keys(Keys.CONTROL + "a" + Keys.NULL + "searched" + Keys.ENTER)

    page.until(lambda: not page.find("[data-test=found]").get_attribute("open"))
