"""Write docs/configuration.md from the table of keys: ``make docs``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from zoolet.server.config.keys import IGNORED, REFUSED, SECTIONS, Key

PAGE = Path(__file__).parents[1] / "configuration.md"
INTRODUCTION = """\
# Configuration

*Made by `make docs` from the table in `server/config/keys.py`; do not edit.*

A key may be written in zoo.cfg as it stands here or with the prefix `zookeeper.`, and as `-DKEY=VALUE` or
`-Dzookeeper.KEY=VALUE` on the command line or in the environment variables `SERVER_JVMFLAGS` and `JVMFLAGS`. Some keys have an
option of `zoolet serve` as well. Options beat the file, and the file beats the environment. A key that is set twice in one place
has the last value.

A value that is invalid, or not supported where that matters, ends the start with exit code 2 and one line that says where it is set
and what is expected. A key that nobody knows is a warning that names the nearest known key; in `Server(config=...)` it is an error.
[Security](security.md) says what the server is safe against."""
ABOUT_IGNORED = """\
These keys of ZooKeeper are accepted and have no effect. One line in the log names those that are set: in the file, or as a `-D`
option with the prefix `zookeeper.`. `*` stands for the rest of a name."""
ABOUT_REFUSED = """\
These keys of ZooKeeper must not be ignored, because security or the answers to clients depend on them: a value that is not accepted
is an error."""


def code(text: str) -> str:
    """Format a name or a value."""
    return f"`{text}`"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    titles = list(columns)
    yield from ("", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|")
    for row in rows:
        yield f"| {' | '.join(row)} |"


def honoured(key: Key) -> tuple[str, ...]:
    """Return the cells of a key that is honoured."""
    value = ", ".join(filter(None, (key.converter.type, key.converter.limits, key.converter.unit)))
    default = code(key.default) if key.default else "not set"
    default += f" ({key.default_note})" if key.default_note else ""
    details = [
        f"Option {code(key.option)}." if key.option else "",
        f"Needs {' and '.join(map(code, key.requires))}." if key.requires else "",
        f"Has no effect where {code(key.overruled_by)} is set." if key.overruled_by else "",
    ]
    return code(key.name), value, default, code(key.example), " ".join(filter(None, (key.help, *details)))


def refused(key: Key) -> tuple[str, ...]:
    """Return the cells of a key that is refused."""
    values = [key.converter.show(value) for value in key.supported]
    accepted = ", ".join(code(value) if value else "empty" for value in values) or "none"
    return code(key.name), accepted, f"not supported; {key.help}."


def page() -> str:
    """Return the text of the page."""
    lines = [INTRODUCTION]
    for title, keys in SECTIONS.items():
        lines += ["", f"## {title}"]
        lines += table(("Key", "Value", "Default", "Example", "Meaning"), map(honoured, keys))
    lines += ["", "## Keys that are ignored", "", ABOUT_IGNORED]
    reasons = groupby(IGNORED, lambda key: key.help)
    lines += table(("Keys", "Why"), ((", ".join(code(key.name) for key in keys), why) for why, keys in reasons))
    lines += ["", "## Keys that are refused", "", ABOUT_REFUSED]
    lines += table(("Key", "Accepted values", "Any other value"), map(refused, REFUSED))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
