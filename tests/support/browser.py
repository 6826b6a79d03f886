"""A browser for tests of the console's pages."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from support.waiting import DEADLINE_S

TOKEN: Final = "0123456789abcdef"
SCREENSHOTS: Final = Path(__file__).parents[2] / "docs" / "images"


class Page:
    """A browser that shows a console."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, place: str = "overview") -> Page:
        """Open a view of the console."""
        if self.driver.current_url.partition("#")[0] != self.url:
            self.driver.get(self.url)
        self.driver.execute_script("location.hash = arguments[0]", f"#/{place}")
        return self

    def text(self) -> str:
        """Return the visible text of the page."""
        return str(self.driver.find_element("tag name", "body").text)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition is truthy, and return its value."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                if result := condition():
                    return result
            except Exception as error:
                if type(error).__name__ not in ("StaleElementReferenceException", "NoSuchElementException"):
                    raise
            assert time.monotonic() < deadline, f"not in time; the page shows {self.text()[:2000]!r}"
            time.sleep(0.02)

    def shows(self, *texts: str) -> None:
        """Wait until the page contains all of these texts."""
        self.until(lambda: all(text in self.text() for text in texts))

    def find(self, selector: str) -> Any:
        """Wait for an element that matches a CSS selector, and return the element."""
        return self.until(lambda: self.driver.find_element("css selector", selector))

    def click(self, text: str) -> None:
        """Press the button with this label."""
        self.until(lambda: self._button(text)).click()

    def _button(self, text: str) -> Any:
        found = [each for each in self.driver.find_elements("tag name", "button") if each.text == text]
        return found[-1] if found else None

    def give_token(self, token: str = TOKEN) -> None:
        """Enter the token in the dialog for tokens."""
        self.find("dialog input[type=password]").send_keys(token)
        self.click("Use it")

    def hurry(self) -> None:
        """Run the timers of the page 20 times as fast until the page is reloaded."""
        self.driver.get(self.url)
        self.driver.execute_script(
            "const slow = setTimeout; window.setTimeout = (call, ms, ...given) => slow(call, (ms || 0) / 20, ...given)"
        )

    def errors(self) -> list[str]:
        """Return the errors in the browser's console log since the last call."""
        logged = self.driver.get_log("browser")
        refused = re.compile(r"/console/api/\S* - .*status of 4\d\d")
        return [line["message"] for line in logged if line["level"] == "SEVERE" and not refused.search(line["message"])]

    def screenshot(self, name: str) -> None:
        """Save a screenshot for the documentation."""
        if os.environ.get("ZOOLET_SCREENSHOTS"):
            SCREENSHOTS.mkdir(exist_ok=True)
            self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
