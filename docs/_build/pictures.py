"""The generator of the pictures in docs/images (``make pictures``).

These are a terminal with a failing test and its report, and, if Chromium is installed, screenshots of the console.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TERMINAL: Final = ROOT / "docs" / "images" / "terminal.svg"
SCREENSHOTS: Final = ("pytest", "-q", "tests/console/test_browser.py")
"""Command for the tests that take the screenshots. If Chromium is missing, pytest skips them."""
COLUMNS: Final = 100
TEST_SOURCE: Final = """\
from kazoo.retry import KazooRetry

from zoolet.testing import lose_reply


def test_order_is_created_once(zoolet, zoolet_kazoo):
    zoolet_kazoo.create("/orders")

    with zoolet.fault(lose_reply(), "create", "/orders/*", times=1):
        KazooRetry(max_tries=3)(zoolet_kazoo.create, "/orders/order-", sequence=True)

    assert zoolet_kazoo.get_children("/orders") == ["order-0000000000"]
"""
PYTEST_COMMAND: Final = ("pytest", "-q", "--tb=short", "--log-level=ERROR", "test_retry.py")
STABLE_OPTIONS: Final = ("--color=yes", "-pno:cacheprovider", "-pno:asyncio", "-pno:xdist", "--zoolet-seed=1")
"""Options that do not change the report."""
COLOURS: Final = {"31": "#ff7b72", "33": "#e3b341", "34": "#79c0ff", "36": "#76e3ea", "90": "#8b949e", "94": "#79c0ff"}
"""Colours of the codes of SGR (select graphic rendition, ECMA-48 8.3.117) that pytest prints."""
SGR: Final = re.compile(r"\x1b\[([\d;]*)m")
SVG_HEADER: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>A test fails, and the report shows that the server executed a create whose reply was lost</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="13" fill="#e6edf3">
"""


def run_session() -> list[str]:
    """Run the test in an empty folder. Return the output lines with their SGR codes.

    Raises:
        SystemExit: The test did not fail as expected.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PYTEST_COMMAND[-1]).write_text(TEST_SOURCE, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", *PYTEST_COMMAND, *STABLE_OPTIONS],
            cwd=folder,
            env={**os.environ, "COLUMNS": str(COLUMNS)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if done.returncode != 1:
        raise SystemExit(f"expected a failing test, found exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return [
        f"$ cat {PYTEST_COMMAND[-1]}",
        *TEST_SOURCE.splitlines(),
        f"$ {' '.join(PYTEST_COMMAND)}",
        *done.stdout.splitlines(),
    ]


def styled_pieces(line: str) -> Iterator[tuple[str, str]]:
    """Split a line at its SGR codes. Yield each piece of text with its SVG attributes."""
    colour, bold, at = "", False, 0
    for match in (*SGR.finditer(line), None):
        if text := line[at : match.start() if match else None]:
            yield text, (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if bold else "")
        if match:
            at = match.end()
            for code in match[1].split(";"):
                if code in COLOURS:
                    colour = COLOURS[code]
                elif code in ("", "0", "39"):
                    colour = ""
                bold = code == "1" or (bold and code not in ("", "0"))


def rows(line: str) -> Iterator[str]:
    """Wrap a line as a terminal does. Yield the SVG content of each row."""
    row, free = "", COLUMNS
    for text, attributes in styled_pieces(line):
        while text:
            if not free:
                yield row
                row, free = "", COLUMNS
            part, text = text[:free], text[free:]
            free -= len(part)
            shown = escape(part).replace(" ", "\N{NO-BREAK SPACE}")  # SVG collapses other spaces
            row += f"<tspan{attributes}>{shown}</tspan>" if attributes else shown
    yield row


def picture(lines: list[str]) -> str:
    """Draw the lines of a terminal as an SVG file."""
    drawn = [row for line in lines for row in rows(line.rstrip())]
    text = "".join(f'<text x="14" y="{26 + 17 * number}">{row}</text>\n' for number, row in enumerate(drawn) if row)
    return SVG_HEADER.format(width=28 + 8 * COLUMNS, height=28 + 17 * len(drawn)) + text + "</g>\n</svg>\n"


def main() -> int:
    """Write the pictures, and return the exit code."""
    TERMINAL.write_text(picture(run_session()), encoding="utf-8")
    environment = {**os.environ, "ZOOLET_SCREENSHOTS": "1"}
    return subprocess.run([sys.executable, "-m", *SCREENSHOTS], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
