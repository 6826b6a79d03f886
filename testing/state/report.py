"""Reports: the state of a server as text and as an HTML page, and the leaks of its clients."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.hexadecimal import hexadecimal
from ...protocol.messages import file_error_reason
from ...protocol.operations import OpCode
from ...protocol.recipe_names import NodeName, parse_contender, sort_by_number
from ..frames.interceptor import Interceptor
from ..frames.requests import OpView, RecordedRequest, recorded_view, shorten_data
from ..signatures import Direction
from . import views
from .views import NodeView, SessionView

if TYPE_CHECKING:
    from ...server.core.engine import Engine

MAX_OPERATIONS: Final = 20
"""Number of operations that a report shows."""
names: dict[Callable[[], int], str] = {}
"""Names of the clients that fixtures have created, by functions that return the ids of their sessions."""
Sections = Mapping[str, list[str]]
"""The sections of a report: lines by title."""


def server_report(
    engine: Engine, interceptor: Interceptor, sessions: Mapping[int, SessionView] | None = None
) -> Sections:
    """Return the state of a server. Sections about faults, pauses and locks are included only if they are not empty.

    Args:
        engine: Engine of the server.
        interceptor: Faults and requests of the server.
        sessions: The sessions to show, by default the sessions of the engine.
    """
    tree, sessions = views.tree(engine), sessions or views.sessions(engine)
    sections = {
        "tree": [_format_node(node) for node in tree.values()],
        "sessions": [_format_session(view, interceptor) for view in sessions.values()],
        "watches": [f"{watch.path} {watch.kind} {hexadecimal(watch.session)}" for watch in views.watches(engine)],
    }
    return {
        **sections,
        **_optional_section("locks and elections", _lock_lines(tree)),
        **interceptor_report(interceptor),
    }


def _direction_suffix(direction: Direction) -> str:
    return "" if direction == "both" else f" ({direction} only)"


def interceptor_report(interceptor: Interceptor) -> Sections:
    """Return the faults, pauses and requests of a server or proxy."""
    waiting = [
        entry for connection in interceptor.connections.values() if (entry := connection.waiting_request()) is not None
    ]
    requests = [request for request in interceptor.seen if request.opcode != OpCode.PING]
    paused = [hexadecimal(id) + _direction_suffix(interceptor.paused[id]) for id in sorted(interceptor.paused)]
    if interceptor.all_paused is not None:
        paused = ["all clients" + _direction_suffix(interceptor.all_paused)]
    return {
        **_optional_section(
            "requests that are held or delayed",
            [
                f"{hexadecimal(each.request.session)} {each.request.view.title}, by {each.matched}"
                + (f", for {max(0.0, interceptor.now() - each.since):.1f} s" if each.since else "")
                for each in waiting
            ],
        ),
        **_optional_section("active faults", [f"{fault!r}, {fault.hits} hits" for fault in interceptor.faults]),
        **_optional_section("paused clients", paused),
        f"last {MAX_OPERATIONS} operations": operations([*map(recorded_view, requests[-MAX_OPERATIONS:])]),
    }


def operations(ops: Sequence[OpView]) -> list[str]:
    """Return a line for each operation: the seconds since the first operation, the client, and the details."""
    known = _session_names()
    return [
        f"+{op.time - ops[0].time:.3f} s  {known.get(op.client) or hexadecimal(op.client)}  {op.details}" for op in ops
    ]


def _session_names() -> dict[int, str]:
    """Return the names of the clients with sessions, by session id."""
    return {id: name for session_id, name in names.items() if (id := session_id())}


def as_text(seed: int, sections: Sections) -> str:
    """Return a report as text, with the seed in the first line."""
    lines = [f"seed {seed}"]
    for title, entries in sections.items():
        lines += [f"{title}:", *(f"  {entry}" for entry in entries or ["none"])]
    return "\n".join(lines)


def _optional_section(title: str, lines: list[str]) -> dict[str, list[str]]:
    return {title: lines} if lines else {}


def _format_node(node: NodeView) -> str:
    kinds = [
        "ephemeral" if node.ephemeral_owner else "",
        "container" if node.container else "",
        f"ttl {node.ttl} s" if node.ttl is not None else "",
        f"version {node.version}" if node.version else "",
    ]
    return " ".join([node.path, shorten_data(node.data), *filter(None, kinds)])


def _format_session(view: SessionView, interceptor: Interceptor) -> str:
    name = f" {known[view.id]}" if view.id in (known := _session_names()) else ""
    last = interceptor.last.get(view.id)
    now = interceptor.now()
    ago = f", {now - last.time:.1f} s ago" if last is not None else ""
    return (
        f"{hexadecimal(view.id)}{name} timeout {view.timeout} s, {view.client or 'not connected'}, "
        f"{len(view.ephemerals)} ephemerals, "
        f"open for {now - interceptor.opened_at.get(view.id, now):.1f} s, last operation: {_request_title(last)}{ago}, "
        f"expires in {view.expires_in:.1f} s"
    )


def _request_title(request: RecordedRequest | None) -> str:
    return recorded_view(request).title if request is not None else "none"


def _lock_lines(tree: Mapping[str, NodeView]) -> list[str]:
    """Return lines with the contenders for each lock, in order. Locks are recognized by the names of their nodes."""
    queues: dict[str, list[NodeName]] = {}
    for path, node in tree.items():
        if node.ephemeral_owner and (found := parse_contender(path)) is not None:
            queues.setdefault(path.rpartition("/")[0] or "/", []).append(found)
    lines = []
    for lock, nodes in sorted(queues.items()):
        paths = [node.name for node in sort_by_number(nodes)]
        entries = [f"{hexadecimal(tree[path].ephemeral_owner)} {path.rpartition('/')[2]}" for path in paths]
        lines += [f"{lock}: {len(paths)} contenders, first come first", *(f"  {entry}" for entry in entries)]
    return lines


def leaks(engine: Engine) -> list[str]:
    """Return a line for each session, ephemeral node, lock contender and watch that clients have left.

    A session without a connection is not a leak: its client may have been closed while it was disconnected.
    """
    lines = []
    for session in views.sessions(engine).values():
        if session.client is None:
            continue
        lines.append(f"session {hexadecimal(session.id)} is still open, from {session.client}")
        for path in session.ephemerals:
            kind = "lock contender" if parse_contender(path) else "ephemeral node"
            lines.append(f"{kind} {path} of session {hexadecimal(session.id)}")
    lines += [
        f"{watch.kind} watch on {watch.path} of session {hexadecimal(watch.session)}" for watch in views.watches(engine)
    ]
    return lines


# --- HTML pages ---

_PAGE_TEMPLATE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em;
  color: #1c2024; background: #fff; }}
h1 {{ font-size: 1.25em; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1em; margin-top: 2em; }}
h3 {{ font-size: 1em; }}
pre {{ background: #f3f4f6; padding: .75em 1em; border-radius: 6px; overflow-x: auto; font-size: 13px; }}
.none {{ color: #6b7280; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e5e7eb; background: #15181c; }} pre {{ background: #20252b; }} }}
</style></head><body>
<h1>{title}</h1>
<pre>{failure}</pre>
{servers}
</body></html>
"""


def as_html(test: str, failure: str, servers: Mapping[str, str]) -> str:
    """Return a self-contained page for a failed test.

    Args:
        test: Name of the test.
        failure: Traceback of the failure.
        servers: State of each server, as :func:`as_text` returns it, by the server's name.
    """
    parts = []
    for name, text in servers.items():
        seed, *lines = text.splitlines()
        parts.append(f"<h2>{escape(name)}</h2>\n<p>{escape(seed)}</p>")
        sections: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith("  "):
                sections[-1][1].append(escape(line[2:]))
            else:
                sections.append((escape(line.removesuffix(":")), []))
        parts += [f"<h3>{title}</h3>\n<pre>{chr(10).join(entries)}</pre>" for title, entries in sections]
    return _PAGE_TEMPLATE.format(title=escape(test), failure=escape(failure), servers="\n".join(parts))


def file_name(test: str, suffix: str) -> str:
    """Return the name of a file of a test: letters, digits and ``-_.``, and a checksum of the test's name."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in test)
    return f"{plain[-120:].lstrip('-.')}-{zlib.crc32(test.encode()):08x}{suffix}"


def write_page(directory: str | Path, test: str, failure: str, servers: Mapping[str, str]) -> str:
    """Write the page of a test, and return its path or an error message.

    Args:
        directory: Folder for the page, which is created if it is missing.
        test: Name of the test.
        failure: Traceback of the failure.
        servers: State of each server, as for :func:`as_html`.
    """
    path = Path(directory) / file_name(test, ".html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_html(test, failure, servers), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"cannot write {path}: {file_error_reason(error)}"
    return str(path)
