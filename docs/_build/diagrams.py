"""The diagrams in docs/images, as functions that draw SVG (``make docs``).

Each diagram is a function that returns SVG. The colours follow the light or dark setting of the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

IMAGES: Final = Path(__file__).parents[1] / "images"
LANE_WIDTH: Final = 210
"""Distance between two lanes of a sequence diagram, in pixels."""
STEP_HEIGHT: Final = 46
"""Distance between two messages of a sequence diagram, in pixels."""
STYLE: Final = """\
<style>
text { font: 14px system-ui, 'DejaVu Sans', sans-serif; fill: #1f2328; text-anchor: middle }
.head { font-weight: 600 }
.mono { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 13px }
.note { fill: #57606a }
.line { stroke: #57606a; stroke-width: 1.5; fill: none }
.lane { stroke: #8c959f; stroke-dasharray: 3 4; fill: none }
.box { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
.plain { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5 }
.pause { fill: #fff8c5; stroke: #9a6700 }
.good { stroke: #1a7f37 } text.good { fill: #1a7f37; stroke: none }
.bad { stroke: #cf222e } text.bad { fill: #cf222e; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #9198a1 } .line { stroke: #9198a1 } .lane { stroke: #656c76 }
  .box { fill: #0c2d6b; stroke: #58a6ff } .plain { fill: #21262d; stroke: #9198a1 }
  .pause { fill: #4b2900; stroke: #d29922 }
  .good { stroke: #3fb950 } text.good { fill: #3fb950 } .bad { stroke: #f85149 } text.bad { fill: #f85149 }
}
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" orient="auto">
<path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>
"""


class Message(NamedTuple):
    """An arrow between two lanes, or a note if both are the same."""

    start: int
    end: int
    text: str
    kind: str = ""


class Pause(NamedTuple):
    """A part of a lane where its process is paused, from message *first* to message *last*."""

    lane: int
    first: int
    last: int


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Draw text, horizontally centred on *x*."""
    return f'<text x="{x:g}" y="{y:g}"' + (f' class="{kind}"' if kind else "") + f">{escape(words, quote=False)}</text>"


def arrow(start: tuple[float, float], end: tuple[float, float], kind: str = "") -> str:
    """Draw an arrow."""
    classes = f"line {kind}".strip()
    ends = f'x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}"'
    return f'<line class="{classes}" {ends} marker-end="url(#arrow)"/>'


def box(x: float, y: float, width: float, height: float, kind: str = "plain") -> str:
    """Draw a box with round corners, centred on *x*."""
    return f'<rect class="{kind}" x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def svg_file(title: str, width: int, height: int, parts: Iterator[str]) -> str:
    """Return the text of an SVG file with a title and the parts."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE + "\n".join(parts), "</svg>", ""])


def sequence(title: str, lanes: Sequence[str], messages: Sequence[Message], pauses: Sequence[Pause] = ()) -> str:
    """Draw a sequence diagram: a lane for each process, and messages from top to bottom."""
    width, height = LANE_WIDTH * len(lanes), 64 + STEP_HEIGHT * len(messages)

    def x(lane: float) -> float:
        return LANE_WIDTH * (lane + 0.5)

    def y(step: float) -> float:
        return 84 + STEP_HEIGHT * step

    def parts() -> Iterator[str]:
        for lane, name in enumerate(lanes):
            yield f'<line class="lane" x1="{x(lane):g}" y1="38" x2="{x(lane):g}" y2="{height}"/>'
            yield box(x(lane), 4, 150, 34, "box")
            yield text(x(lane), 26, name, "head")
        for lane, first, last in pauses:
            yield box(x(lane), y(first) - 20, 74, y(last) - y(first) + 26, "pause")
            yield text(x(lane), (y(first) + y(last)) / 2 - 2, "paused")
        for step, (start, end, words, kind) in enumerate(messages):
            if start == end:
                yield box(x(start), y(step) - 22, 160, 28)
                yield text(x(start), y(step) - 3, words)
            else:
                yield text((x(start) + x(end)) / 2, y(step) - 8, words, kind)
                yield arrow((x(start), y(step)), (x(end), y(step)), kind)

    return svg_file(title, width, height, parts())


def states_diagram() -> str:
    """Draw the states of a client and the transitions between them."""
    places = {"CONNECTING": 95, "CONNECTED": 335, "SUSPENDED": 575, "LOST": 815}

    def parts() -> Iterator[str]:
        for name, x in places.items():
            yield box(x, 18, 130, 36, "box" if name == "CONNECTED" else "plain")
            yield text(x, 41, name, "mono")
        yield arrow((160, 36), (268, 36), "good")
        yield text(214, 28, "server found", "note")
        yield arrow((400, 28), (508, 28), "bad")
        yield text(454, 18, "connection lost", "note")
        yield arrow((510, 44), (402, 44), "good")
        yield text(455, 61, "in time", "note")
        yield arrow((640, 36), (748, 36), "bad")
        yield text(694, 28, "expired", "note")
        yield '<path class="line good" d="M815 54V94H335V56" marker-end="url(#arrow)"/>'
        yield text(575, 88, "a new session", "note")

    return svg_file("The states of a client", 910, 104, parts())


def watch_diagram() -> str:
    """Draw how an event precedes the answer that shows the change."""
    messages = [
        Message(0, 1, 'getData "/a", with a watch'),
        Message(1, 0, 'data "1"'),
        Message(2, 1, 'setData "/a", "2"'),
        Message(1, 0, 'event: "/a" has changed', "good"),
        Message(1, 2, "ok"),
        Message(0, 1, 'getData "/a"'),
        Message(1, 0, 'data "2"'),
    ]
    return sequence("A watch and its event", ["your program", "server", "another client"], messages)


def paused_holder_diagram() -> str:
    """Draw how a fencing token stops a holder that was paused."""
    messages = [
        Message(0, 1, "acquire"),
        Message(1, 0, "granted, token 100"),
        Message(2, 1, "acquire"),
        Message(1, 1, "A's session expires"),
        Message(1, 2, "granted, token 107"),
        Message(2, 3, "write, token 107"),
        Message(3, 2, "ok", "good"),
        Message(0, 3, "write, token 100", "bad"),
        Message(3, 0, "rejected: 100 is lower than 107", "bad"),
    ]
    lanes = ["client A", "ZooKeeper", "client B", "database"]
    return sequence("A paused holder and the fencing token", lanes, messages, [Pause(0, 2, 6)])


def lock_queue_diagram() -> str:
    """Draw the nodes of a lock, and the node that each client watches."""
    states = [("client A", "holds the lock"), ("client B", "waits"), ("client C", "waits"), ("client D", "waits")]

    def parts() -> Iterator[str]:
        yield box(470, 4, 200, 34)
        yield text(470, 26, "/locks/report", "mono")
        for place, (client, state) in enumerate(states):
            x = 95 + 250 * place
            yield f'<path class="lane" d="M470 38V54H{x}V72"/>'
            yield box(x, 72, 168, 34, "box" if place == 0 else "plain")
            yield text(x, 94, f"…__lock__{place:010d}", "mono")
            yield text(x, 132, client, "head")
            yield text(x, 152, state, "good" if place == 0 else "note")
            if place:
                yield arrow((x - 84, 89), (x - 166, 89))
                yield text(x - 125, 80, "watches", "note")

    return svg_file("The queue of a lock", 940, 166, parts())


def partition_diagram() -> str:
    """Draw a cluster of three members with an isolated leader."""
    members = [
        (110, "member 0", "was the leader", "bad"),
        (430, "member 1", "new leader", "good"),
        (670, "member 2", "follower", "good"),
    ]

    def parts() -> Iterator[str]:
        yield '<line class="line bad" x1="270" y1="10" x2="270" y2="210" stroke-dasharray="8 6"/>'
        yield text(270, 228, "partition([0], [1, 2])", "mono")
        for x, name, role, kind in members:
            yield box(x, 20, 150, 62, "plain" if kind == "bad" else "box")
            yield text(x, 46, name, "head")
            yield text(x, 68, role, kind)
        yield '<line class="line" x1="505" y1="51" x2="595" y2="51"/>'
        yield arrow((110, 150), (110, 84), "bad")
        yield text(110, 172, "client: ConnectionLoss", "bad")
        yield text(110, 192, "no quorum, no answers", "note")
        yield arrow((550, 150), (450, 84), "good")
        yield arrow((550, 150), (650, 84), "good")
        yield text(550, 172, "client: reads and writes succeed", "good")
        yield text(550, 192, "two of three members are a quorum", "note")

    return svg_file("A cluster of three under a partition", 780, 240, parts())


DIAGRAMS: Final[dict[str, Callable[[], str]]] = {
    "states": states_diagram,
    "watch": watch_diagram,
    "paused-holder": paused_holder_diagram,
    "lock-queue": lock_queue_diagram,
    "partition": partition_diagram,
}


def main() -> None:
    """Write all diagrams."""
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
