"""The four-letter words: one command, one answer as plain text, on the client port.

Source: org.apache.zookeeper.server.command.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import Final

from zoolet.server.core.caller import Caller
from zoolet.server.core.connection import Word
from zoolet.server.core.engine import Engine

KNOWN: Final = (
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr", "stat", "stmk", "wchc",
    "wchp", "wchs",
)  # fmt: skip
"""Every word that ZooKeeper knows; one that is known but not allowed is refused by name."""
TELNET_CLOSE: Final = b"\xff\xf4\xff\xfd"
"""What a telnet client sends when its user presses ^C: the connection is closed without a word."""


def words(whitelist: Iterable[str]) -> dict[bytes, Word]:
    """Give what answers each word.

    Args:
        whitelist: The words that are allowed; ``*`` stands for all, and ``srvr`` always is.
    """
    allowed = {"srvr", *(word.strip() for word in whitelist)}
    table: dict[bytes, Word] = {TELNET_CLOSE: lambda engine, caller, rest: b""}
    for name in KNOWN:
        answer = ANSWERS.get(name)
        table[name.encode()] = _word(answer) if answer and allowed & {name, "*"} else _refusal(name)
    return table


def _word(answer: Callable[[Engine, Caller], str]) -> Word:
    return lambda engine, caller, rest: answer(engine, caller).encode()


def _refusal(name: str) -> Word:
    text = f"{name} is not executed because it is not in the whitelist.\n".encode()
    return lambda engine, caller, rest: text


def number(value: float) -> str:
    """Write a number as Java writes a double."""
    return f"{value:.1e}".replace("e+0", "E").replace("e+", "E") if value >= 1e7 else repr(float(value))


def version(engine: Engine) -> str:
    """Give the version line's text, in the shape that tools parse."""
    return f"{engine.settings.compat.release}-zoolet, built on {platform.python_implementation()} {platform.python_version()}"


def ruok(engine: Engine, caller: Caller) -> str:
    """Answer that the server runs."""
    return "imok"


def isro(engine: Engine, caller: Caller) -> str:
    """Answer whether the server takes writes."""
    return "ro" if engine.read_only else "rw"


def _mode(engine: Engine) -> str:
    return "read-only" if engine.read_only else "standalone"


def _figures(engine: Engine) -> str:
    m = engine.metrics
    return (
        f"Latency min/avg/max: {int(m.latency_min)}/{number(m.latency_average())}/{int(m.latency_max)}\n"
        f"Received: {m.packets_received}\nSent: {m.packets_sent}\nConnections: {len(engine.callers)}\nOutstanding: 0\n"
        f"Zxid: 0x{engine.zxid:x}\nMode: {_mode(engine)}\nNode count: {engine.tree.size + 1}\n"
    )


def srvr(engine: Engine, caller: Caller) -> str:
    """Answer with the server's figures. The root counts twice, as in ZooKeeper."""
    return f"Zookeeper version: {version(engine)}\n{_figures(engine)}"


def stat(engine: Engine, caller: Caller) -> str:
    """Answer with the server's figures and its connections."""
    clients = "".join(f"{brief(one, asking=one is caller)}\n" for one in engine.callers)
    return f"Zookeeper version: {version(engine)}\nClients:\n{clients}\n{_figures(engine)}"


def brief(caller: Caller, *, asking: bool = False) -> str:
    """Write one connection as ``stat`` lists it."""
    host = f"[{caller.host}]" if ":" in caller.host else caller.host
    return f" /{host}:{caller.port}[{0 if asking else 1}](queued=0,recved={caller.received},sent={caller.sent})"


def mntr(engine: Engine, caller: Caller) -> str:
    """Answer with one figure a line, as monitoring reads them."""
    m, tree = engine.metrics, engine.tree
    figures: dict[str, object] = {
        "version": version(engine),
        "server_state": _mode(engine),
        "avg_latency": number(m.latency_average()),
        "max_latency": int(m.latency_max),
        "min_latency": int(m.latency_min),
        "packets_received": m.packets_received,
        "packets_sent": m.packets_sent,
        "num_alive_connections": len(engine.callers),
        "outstanding_requests": 0,
        "uptime": engine.uptime - engine.started,
        "znode_count": tree.size + 1,
        "watch_count": engine.watches.count(),
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "approximate_data_size": tree.data_size + 2,
        "global_sessions": len(engine.sessions.alive),
        "local_sessions": 0,
        "auth_failed_count": m.auth_failed,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in figures.items())


ANSWERS: Final[dict[str, Callable[[Engine, Caller], str]]] = {
    "ruok": ruok,
    "isro": isro,
    "srvr": srvr,
    "stat": stat,
    "mntr": mntr,
}
"""The words that are answered."""
