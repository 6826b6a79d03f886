"""The console in a real browser shows what is stored, lists what exists, and overwrites only what it has shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from support.browser import Page

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from zoolet.client import acl

pytestmark = pytest.mark.slow
STORED_JSON = '{"big": 9007199254740993, "big": 1e400, "nested": [{}, [], "\\u0041,[{:"], "exact": 1.10}'
FORMATTED_JSON = """{
  "big": 9007199254740993,
  "big": 1e400,
  "nested": [
    {},
    [],
    "\\u0041,[{:"
  ],
  "exact": 1.10
}"""


def data(page: Page) -> str:
    """Return the data on the page."""
    return str(page.find("[data-test=data]").text)


def names(page: Page) -> list[str]:
    """Return the names in the list of children that are in view."""
    script = """const box = document.querySelector(".long")?.getBoundingClientRect();
    return [...document.querySelectorAll(".long li > a")].filter((each) => {
      const {top, bottom} = each.getBoundingClientRect(); return top >= box.top && bottom <= box.bottom;
    }).map((each) => each.textContent.trim())"""
    return list(page.driver.execute_script(script))


def type_into(page: Page, selector: str, text: str) -> None:
    """Replace the text of a field."""
    page.find(selector).send_keys(Keys.CONTROL + "a" + Keys.NULL + text)


def test_json_is_shown_as_stored(page: Page, zk: Any) -> None:
    zk.create("/stored", STORED_JSON.encode())
    page.open("tree/%2Fstored")
    page.until(lambda: data(page) == FORMATTED_JSON)


def test_duplicate_msgpack_keys_are_all_shown(page: Page, zk: Any) -> None:
    zk.create("/equal", b"\x82\xa1k\x01\xa1k\x02")
    page.open("tree/%2Fequal")
    page.until(lambda: data(page) == '{\n  "k": 1,\n  "k": 2\n}')


@pytest.mark.parametrize("shift", range(4))
def test_large_text_is_truncated_between_characters(page: Page, zk: Any, shift: int) -> None:
    zk.create(f"/cut{shift}", b"x" * shift + "\U0001f418".encode() * 17_000)  # 68 kB, of which the page shows 64 kB
    page.open(f"tree/%2Fcut{shift}")
    page.until(lambda: data(page).endswith("\U0001f418"))
    page.click("Show all")
    page.until(lambda: len(data(page)) == 17_000 + shift)


def test_data_above_64_kb_can_be_edited_on_page(page: Page, zk: Any) -> None:
    zk.create("/long", b"x" * 70_000)
    page.open("tree/%2Flong")
    page.click("Edit…")
    page.give_token()
    page.until(lambda: len(page.find("textarea").get_attribute("value")) == 70_000)
    type_into(page, "textarea", "short")
    page.click("Save…")
    page.click("Set the data")
    page.until(lambda: zk.get("/long")[0] == b"short")


@pytest.mark.parametrize(
    ("stored", "reason"), [(b"\xff", "Its data is not text"), (b"a\r\nb", "carriage returns")], ids=["binary", "CR"]
)
def test_page_shows_reason_why_data_cannot_be_edited(page: Page, zk: Any, stored: bytes, reason: str) -> None:
    zk.create(f"/unedited{len(stored)}", stored)
    page.open(f"tree/%2Funedited{len(stored)}")
    page.click("Edit…")
    page.give_token()
    page.shows(reason, "Use edit of zoolet shell")


def test_node_recreated_during_edit_is_not_overwritten(page: Page, zk: Any) -> None:
    zk.create("/again", b"old")
    page.open("tree/%2Fagain")
    page.click("Edit…")
    page.give_token()
    type_into(page, "textarea", "mine")
    zk.delete("/again")
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "[data-test=gone]"))
    zk.create("/again", b"theirs")
    page.shows("Another client has deleted the node and created it again.")
    page.click("Save…")
    page.click("Set the data")
    page.shows("409", "the node was deleted and created again since it was shown")
    assert zk.get("/again")[0] == b"theirs"
    page.click("Cancel")
    assert page.find("textarea").get_attribute("value") == "mine"


def test_node_recreated_during_deletion_dialog_is_not_deleted(page: Page, zk: Any) -> None:
    zk.create("/kept", b"old")
    page.open("tree/%2Fkept")
    page.click("Delete…")
    page.give_token()
    page.shows("will be deleted if it still has version 0")
    zk.delete("/kept")
    zk.create("/kept", b"theirs")
    page.click("Delete the node")
    page.shows("409", "the node was deleted and created again since it was shown")
    assert zk.get("/kept")[0] == b"theirs"


def test_acl_can_be_changed_after_token_is_entered(page: Page, zk: Any) -> None:
    zk.create("/locked", b"", acl=acl.digest("ann", "secret"))
    page.open("tree/%2Flocked")
    page.click("Change the ACL…")
    page.give_token()
    page.until(lambda: page.find("form.inline input").get_attribute("value").count(":") == 3)
    page.click("Change…")
    page.click("Change the ACL")
    zk.add_auth("digest", b"ann:secret")
    page.until(lambda: zk.exists("/locked").aversion == 1)


def test_search_finds_name_with_brackets(page: Page, zk: Any) -> None:
    for name in ("job[x]", "jobx"):
        zk.create(f"/{name}")
    page.open("tree/%2F")
    page.find("#search").send_keys("job[x]" + Keys.ENTER)
    page.shows("2 found")
    assert {each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "[data-test=found] a")} == {
        "/job[x]",
        "/jobx",
    }


def test_list_of_children_keeps_scroll_position(page: Page, zk: Any) -> None:
    zk.create("/folder")
    with zk.transaction() as transaction:
        for number in range(350):
            transaction.create(f"/folder/n{number:03}")
    page.open("tree/%2Ffolder")
    page.shows("350 children of /folder", "n000")
    page.driver.execute_script("document.querySelector('.long').scrollTop = 28 * 90")
    page.until(lambda: names(page)[:1] == ["n090"])
    with zk.transaction() as transaction:
        for number in range(50):
            transaction.delete(f"/folder/n{number:03}")
    page.shows("300 children of /folder")
    page.until(lambda: names(page)[:1] == ["n090"])
    for top in (40, 95, 200, 290):  # 17 rows are in view, so the list of 300 cannot scroll beyond row 283
        page.driver.execute_script(f"document.querySelector('.long').scrollTop = 28 * {top}")
        expected = [f"n{50 + min(top, 283) + number:03}" for number in range(17)]
        page.until(lambda expected=expected: names(page) == expected)  # type: ignore[misc]


def test_reload_button_refreshes_children(page: Page, zk: Any) -> None:
    zk.create("/rows")
    zk.create("/rows/old")
    page.open("tree/%2Frows")
    page.until(lambda: names(page) == ["old"])
    # From now on the page sends no request on its own, so only the button can refresh it.
    page.driver.execute_script("window.setTimeout = () => 0")
    zk.delete("/rows/old")
    zk.create("/rows/new")
    page.click("Reload")
    page.until(lambda: names(page) == ["new"])


def test_earlier_transactions_are_appended_without_gap(page: Page, zk: Any) -> None:
    zk.create("/numbered")
    for number in range(250):
        zk.create(f"/numbered/{number}")
    page.open("history/" + quote("?of=%2Fnumbered&below=1", safe=""))
    page.shows("created /numbered/249")
    for number in range(250, 290):
        zk.create(f"/numbered/{number}")
    page.click("Earlier")
    page.until(lambda: len(page.driver.find_elements(By.CSS_SELECTOR, "[data-test=entries] > li")) == 200)
    rows = [each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "[data-test=entries] > li")]
    numbers = [int(row.split("/numbered/")[1].split()[0]) for row in rows]
    assert numbers == list(range(numbers[0], numbers[0] - 200, -1))
