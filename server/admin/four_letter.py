"""The four-letter commands, which are answered in plain text on the client port.

Source: org.apache.zookeeper.server.command.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address
from typing import Final

from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OPERATIONS
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import FourLetterCommand
from zoolet.server.core.watches import DATA, NULL_PATH

KNOWN: Final = (
    "conf",
    "cons",
    "crst",
    "dirs",
    "dump",
    "envi",
    "gtmk",
    "hash",
    "isro",
    "mntr",
    "ruok",
    "srst",
    "srvr",
    "stat",
    "stmk",
    "wchc",
    "wchp",
    "wchs",
)
"""All four-letter commands of ZooKeeper. One that is not in the whitelist is refused with its name."""
_BUILT: Final = "11/22/2026 00:00 UTC"
"""The date of the release, in the form of ZooKeeper up to 3.6: go-zookeeper reads no other one, and others read any."""
_PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
TELNET_CLOSE: Final = b"\xff\xf4\xff\xfd"
"""The bytes that a telnet client sends for ^C: the connection is closed without an answer."""


def four_letter_commands(
    whitelist: Iterable[str], configuration: Callable[[], Mapping[str, object]] | None = None
) -> dict[bytes, FourLetterCommand]:
    """Return the commands by their four bytes.

    Args:
        whitelist: The commands that are allowed; ``*`` allows all, and ``srvr`` is always allowed.
        configuration: Returns the ports and limits that ``conf`` shows, by ZooKeeper's keys.
    """
    allowed = {"srvr", *(word.strip() for word in whitelist)}
    table: dict[bytes, FourLetterCommand] = {TELNET_CLOSE: lambda engine, client, data: b""}
    for name in KNOWN:
        answer = ANSWERS.get(name)
        table[name.encode()] = _text_command(answer) if answer and allowed & {name, "*"} else _refusal(name)
    if allowed & {"conf", "*"}:
        table[b"conf"] = lambda engine, client, data: conf(engine, configuration() if configuration else {}).encode()
    if allowed & {"stmk", "*"}:
        table[b"stmk"] = set_trace_mask
    return table


def _text_command(answer: Callable[[Engine, ClientConnection], str]) -> FourLetterCommand:
    return lambda engine, client, data: answer(engine, client).encode()


def _refusal(name: str) -> FourLetterCommand:
    text = f"{name} is not executed because it is not in the whitelist.\n".encode()
    return lambda engine, client, data: text


def number(value: float) -> str:
    """Format a number as Java formats a double."""
    return f"{value:.1e}".replace("e+0", "E").replace("e+", "E") if value >= 1e7 else repr(float(value))


def version(engine: Engine) -> str:
    """Return the text of the version line, in the form that tools parse."""
    return f"{engine.settings.compat.release}-zoolet, built on {_BUILT}"


def ruok(engine: Engine, client: ClientConnection) -> str:
    """Answer that the server is running."""
    return "imok"


def isro(engine: Engine, client: ClientConnection) -> str:
    """Answer whether the server is read-only: a client that looks for one that takes writes asks this."""
    return "rw" if _mode(engine) == "standalone" else "ro"


def _mode(engine: Engine) -> str:
    return "read-only" if engine.read_only or engine.refusal else "standalone"


def _figures(engine: Engine) -> str:
    m = engine.metrics
    return (
        f"Latency min/avg/max: {int(m.latency_min)}/{number(m.latency_average())}/{int(m.latency_max)}\n"
        f"Received: {m.packets_received}\nSent: {m.packets_sent}\n"
        f"Connections: {len(engine.connections)}\nOutstanding: 0\n"
        f"Zxid: 0x{engine.zxid:x}\nMode: {_mode(engine)}\nNode count: {engine.tree.size + 1}\n"
        + (f"Writes refused: {engine.refusal}\n" if engine.refusal else "")
    )


def srvr(engine: Engine, client: ClientConnection) -> str:
    """Answer with the server's statistics. The root is counted twice, as in ZooKeeper."""
    return f"Zookeeper version: {version(engine)}\n{_figures(engine)}"


def stat(engine: Engine, client: ClientConnection) -> str:
    """Answer with the server's statistics and its connections."""
    clients = "".join(f"{brief(connected, asking=connected is client)}\n" for connected in engine.connections)
    return f"Zookeeper version: {version(engine)}\nClients:\n{clients}\n{_figures(engine)}"


def brief(client: ClientConnection, *, asking: bool = False) -> str:
    """Return the line of one connection in the answer to ``stat``."""
    host = _java_ip6(client.host) if ":" in client.host else client.host
    return f" /{host}:{client.port}[{0 if asking else 1}](queued=0,recved={client.received},sent={client.sent})"


def _java_ip6(host: str) -> str:
    """Format an IPv6 address as Java does: eight groups, not abbreviated and without leading zeros."""
    groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
    return "[" + ":".join(f"{int(group, 16):x}" for group in groups) + "]"


def _open_files() -> int:
    """Return the number of open files; -1 on systems without ``/proc``, the limit if no descriptor is left to count."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except FileNotFoundError:
        return -1
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def mntr(engine: Engine, client: ClientConnection) -> str:
    """Answer with one metric a line, for monitoring systems."""
    m, tree = engine.metrics, engine.tree
    figures: dict[str, object] = {
        "version": version(engine),
        "server_state": _mode(engine),
        "avg_latency": number(m.latency_average()),
        "max_latency": int(m.latency_max),
        "min_latency": int(m.latency_min),
        "packets_received": m.packets_received,
        "packets_sent": m.packets_sent,
        "num_alive_connections": len(engine.connections),
        "outstanding_requests": 0,
        "uptime": engine.monotonic_ms - engine.started,
        "znode_count": tree.size + 1,
        "watch_count": engine.watches.active,
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "approximate_data_size": tree.data_size + 1,
        "open_file_descriptor_count": _open_files(),
        "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "global_sessions": len(engine.sessions.alive),
        "local_sessions": 0,
        "auth_failed_count": m.auth_failed,
        "connection_drop_probability": "0.0",
        "zoolet_writes_refused": int(bool(engine.refusal)),
        "zoolet_super_logins": m.super_logins,
        "zoolet_stalls": m.stalls,
        "zoolet_stalled_ms": m.stalled_ms,
        **{f"zoolet_refused_{limit}": count for limit, count in m.refused.items()},
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in figures.items())


def cons(engine: Engine, client: ClientConnection) -> str:
    """Answer with the details of each connection."""
    return "".join(f"{_full(connected, asking=connected is client)}\n" for connected in engine.connections) + "\n"


def _full(client: ClientConnection, *, asking: bool) -> str:
    line = brief(client, asking=asking)
    session = client.session
    if session is None:
        return line
    row = OPERATIONS.get(client.last_op)
    op = "SESS" if client.last_op == -1 else (row.short if row is not None else "") or "NA"
    xid = f",lcxid=0x{client.last_xid:x}" if client.last_xid >= 0 else ""
    return (
        f"{line[:-1]},sid=0x{session.id:x},lop={op},est={client.since},to={session.timeout_ms}{xid},"
        f"lzxid={hexadecimal(client.last_zxid)},lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)"
    )


def conf(engine: Engine, configured: Mapping[str, object]) -> str:
    """Answer with the configuration, by ZooKeeper's keys and in its order."""
    settings = engine.settings
    facts: dict[str, object] = {
        "clientPort": -1,
        "secureClientPort": -1,
        "dataDir": "",
        "dataDirSize": 0,
        "dataLogDir": "",
        "dataLogSize": 0,
        "tickTime": settings.tick_time,
        "maxClientCnxns": 0,
        "minSessionTimeout": settings.min_session_timeout,
        "maxSessionTimeout": settings.max_session_timeout,
        "clientPortListenBacklog": -1,
        "serverId": 0,
    }
    return "".join(f"{name}={configured.get(name, value)}\n" for name, value in facts.items())


def gtmk(engine: Engine, client: ClientConnection) -> str:
    """Answer with the trace mask, which is stored and has no effect."""
    return str(engine.trace_mask)


def set_trace_mask(engine: Engine, client: ClientConnection, argument: bytes) -> bytes:
    """Set the trace mask to the eight bytes behind ``stmk``, and answer with it."""
    if len(argument) < 8:
        return b""
    engine.trace_mask = int.from_bytes(argument[:8], "big", signed=True)
    return str(engine.trace_mask).encode()


def hash_(engine: Engine, client: ClientConnection) -> str:
    """Answer with the digests of the transaction log, which are none."""
    return ""


def crst(engine: Engine, client: ClientConnection) -> str:
    """Reset the counters of all connections."""
    for connected in engine.connections:
        connected.received = connected.sent = 0
    return "Connection stats reset.\n"


def srst(engine: Engine, client: ClientConnection) -> str:
    """Reset the server's counters."""
    engine.metrics.reset()
    return "Server stats reset.\n"


def dirs(engine: Engine, client: ClientConnection) -> str:
    """Answer with the size of the data directories, which is 0 in memory."""
    return "datadir_size: 0\nlogdir_size: 0\n"


def dump(engine: Engine, client: ClientConnection) -> str:
    """Answer with all sessions by deadline, and their ephemeral nodes."""
    alive = engine.sessions.alive.values()
    sessions: dict[int, list[str]] = {}
    for session in alive:
        sessions.setdefault(session.deadline, []).append(f"\t0x{session.id:x}")
    connections: dict[int, list[str]] = {}
    for peer in engine.connections:
        deadline, session_id = (peer.session.deadline, peer.session.id) if peer.session else (peer.deadline, 0)
        connections.setdefault(deadline, []).append(f"\tip: /{peer.host}:{peer.port} sessionId: 0x{session_id:x}")
    owners = engine.tree.ephemerals
    lines = ["SessionTracker dump:", f"Session Sets ({len(sessions)})/({len(alive)}):", *_buckets(engine, sessions)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for owner, paths in owners.items():
        lines += [f"0x{owner:x}:", *(f"\t{path}" for path in paths)]
    lines += ["Connections dump:", f"Connections Sets ({len(connections)})/({len(engine.connections)}):"]
    lines += _buckets(engine, connections)
    return "\n".join(lines) + "\n"


def _buckets(engine: Engine, by_deadline: dict[int, list[str]]) -> list[str]:
    lines = []
    for deadline in sorted(by_deadline):
        when = datetime.fromtimestamp((engine.now + deadline - engine.monotonic_ms) / 1000, UTC)
        lines += [
            f"{len(by_deadline[deadline])} expire at {when:%a %b %d %H:%M:%S} UTC {when.year}:",
            *by_deadline[deadline],
        ]
    return lines


def envi(engine: Engine, client: ClientConnection) -> str:
    """Answer with the server's environment, under Java's names."""
    system = os.uname()
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page >> 20
    free = os.sysconf("SC_AVPHYS_PAGES") * page >> 20
    facts = {
        "zookeeper.version": version(engine),
        "host.name": system.nodename,
        "java.version": _PYTHON,
        "java.vendor": sys.implementation.name,
        "java.home": sys.prefix,
        "java.class.path": "",
        "java.library.path": "",
        "java.io.tmpdir": os.environ.get("TMPDIR", "/tmp"),
        "java.compiler": "",
        "os.name": system.sysname,
        "os.arch": system.machine,
        "os.version": system.release,
        "user.name": os.environ.get("USER", ""),
        "user.home": os.path.expanduser("~"),
        "user.dir": os.getcwd(),
        "os.memory.free": f"{free}MB",
        "os.memory.max": f"{total}MB",
        "os.memory.total": f"{total}MB",
    }
    return "Environment:\n" + "".join(f"{name}={value or '<NA>'}\n" for name, value in facts.items())


def wchs(engine: Engine, client: ClientConnection) -> str:
    """Answer with the number of data watches; a connection is also counted if its watches have fired."""
    by_path = engine.watches.by_path(DATA)
    watching = sum(connected.watched_data for connected in engine.connections)
    return f"{watching} connections watching {len(by_path)} paths\nTotal watches:{sum(map(len, by_path.values()))}\n"


def _named(path: str) -> str:
    return "null" if path == NULL_PATH else path


def wchp(engine: Engine, client: ClientConnection) -> str:
    """Answer with the sessions that watch each path."""
    lines = []
    for path, clients in engine.watches.by_path(DATA).items():
        lines += [_named(path), *(f"\t0x{watcher.session_id:x}" for watcher in clients)]
    return "".join(f"{line}\n" for line in lines) + "\n"


def wchc(engine: Engine, client: ClientConnection) -> str:
    """Answer with the paths that each session watches."""
    lines = []
    for connected in engine.connections:
        if connected.session is not None and connected.watched_data:
            lines += [f"0x{connected.session.id:x}", *(f"\t{_named(path)}" for path in connected.modes[DATA])]
    return "".join(f"{line}\n" for line in lines) + "\n"


ANSWERS: Final[dict[str, Callable[[Engine, ClientConnection], str]]] = {
    "cons": cons,
    "crst": crst,
    "dirs": dirs,
    "dump": dump,
    "envi": envi,
    "ruok": ruok,
    "srst": srst,
    "wchc": wchc,
    "wchp": wchp,
    "wchs": wchs,
    "isro": isro,
    "srvr": srvr,
    "stat": stat,
    "mntr": mntr,
    "gtmk": gtmk,
    "hash": hash_,
}
"""The commands whose answers depend on the engine alone."""
