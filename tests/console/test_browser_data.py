"""Names and data in a real browser: invisible, long, nested or packed values are shown in readable form."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import msgpack
import pytest
from support.browser import Page

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.slow
INVISIBLE_CHARACTERS: Final = ["\u3164", "\u115f", "\u2800", "\u034f", "\u180e", "\ufe0f", "\uffa0"]


def test_invisible_characters_are_shown_as_code_points(page: Page, zk: Any) -> None:
    zk.create("/invisible", b"")
    for character in INVISIBLE_CHARACTERS:
        zk.create(f"/invisible/lock{character}", b"")
    page.open("tree/%2Finvisible")

    page.shows(*[f"lock\\u{{{ord(character):x}}}" for character in INVISIBLE_CHARACTERS])


def test_unusual_spaces_are_shown_as_code_points(page: Page, zk: Any) -> None:
    zk.create("/blank", b"")
    for name in (" x", "x ", "x  y", "x\u00a0", "x\u3000y", "x y", "x\\u{20}"):
        zk.create(f"/blank/{name}", b"")
    page.open("tree/%2Fblank")

    page.shows("\\u{20}x", "x\\u{20}", "x\\u{20} y", "x\\u{a0}", "x\\u{3000}y", "x y", "x\\u{5c}u{20}")


def test_control_characters_do_not_stop_browser(page: Page, zk: Any) -> None:
    zk.create("/control", b"\x01" * 300_000)
    page.open("tree/%2Fcontrol")
    page.until(lambda: page.find("[data-test=data]").get_attribute("class") == "data text")

    page.click("Show all")

    page.until(lambda: page.find("[data-test=data]").get_attribute("class") == "data hex")


def test_nested_data_does_not_stop_browser(page: Page, zk: Any) -> None:
    zk.create("/nested", b"")
    numbers = ",".join(["1"] * 20_000)
    zk.create("/nested/json", f"{'[' * 3_000}{numbers}{']' * 3_000}".encode())
    zk.create("/nested/msgpack", b"\x91" * 900 + b"\xdc\xf9\x00" + b"\x01" * 0xF900)
    zk.create("/nested/wide", f"[{numbers}]".encode())
    for name, form in (("json", "text"), ("msgpack", "hex"), ("wide", "JSON")):
        page.open(f"tree/%2Fnested%2F{name}")
        page.until(lambda form=form: page.find("[data-test=data]").get_attribute("class") == f"data {form}")  # type: ignore[misc]
        length = page.driver.execute_script("return document.querySelector('[data-test=data]').textContent.length")

        assert length < 400_000


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63, 2**64 - 1,
        -1, -32, -33, -129, -32_769, -(2**31) - 1, 1.5, "", "é" * 40, "x" * 300, "x" * 70_000,
        [], list(range(20)), [1] * 70_000, {}, {"a": {"b": [None]}}, {str(key): key for key in range(20)},
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_msgpack_is_decoded_in_browser(page: Page, value: Any) -> None:
    page.open()
    packed = base64.b64encode(msgpack.packb([value])).decode()
    script = """const done = arguments[1];
        Promise.all([import("/console/data.js"), import("/console/lib.js")]).then(([data, lib]) =>
            done(data.formsOf(lib.decodeBase64(arguments[0]), true).msgpack?.() ?? null))"""
    shown = page.driver.execute_async_script(script, packed)

    if shown is None:
        assert value == [1] * 70_000, "too long to be shown"
    else:
        assert json.loads(shown) == [value]


@pytest.mark.parametrize(
    "data",
    [
        b"\x91", b"\x91\x01\x01", b"\xc1", b"\xdd\xff\xff\xff\xff\x01", b"\xdb\x00\x00\x00\x05ab", b"\xa1\xff",
        b"\x91" * 60 + b"\x01",
    ],
)  # fmt: skip
def test_invalid_or_deep_msgpack_is_not_decoded(page: Page, data: bytes) -> None:
    page.open()
    script = """const done = arguments[1];
        Promise.all([import("/console/data.js"), import("/console/lib.js")]).then(([data, lib]) =>
            done(Object.keys(data.formsOf(lib.decodeBase64(arguments[0]), true))))"""

    assert "msgpack" not in page.driver.execute_async_script(script, base64.b64encode(data).decode())


def test_long_name_is_truncated_and_not_linked(page: Page, zk: Any) -> None:
    zk.create("/cut", b"")
    zk.create("/cut/" + "x" * 100_000, b"", ephemeral=True)
    page.open("tree/%2Fcut")
    page.shows("1 child", "… (100,000 characters)")
    assert not page.driver.find_elements(By.CSS_SELECTOR, ".long a")
    page.open("history")
    page.shows("characters)")
