"""The answers to the four-letter commands, imported by ``four_letter_commands.py`` when the first command arrives.

Source: org.apache.zookeeper.server.command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.hexadecimal import hexadecimal
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from .commands import reset_connections
from .facts import (
    configuration,
    environment,
    last_operation,
    sessions_by_deadline,
    statistics,
    watch_summary,
    watched_by_session,
    watching_by_path,
)
from .figures import monitor
from .java import double
from .observed import Observed


def ruok(observed: Observed, client: ClientConnection) -> str:
    """Answer that the server is running."""
    return "imok"


def isro(observed: Observed, client: ClientConnection) -> str:
    """Answer whether the server is read-only. Clients use this to find a server that accepts writes."""
    return "ro" if observed.refusal() else "rw"


def _figures(observed: Observed) -> str:
    engine, facts = observed.engine, statistics(observed)
    return (
        f"Latency min/avg/max: {facts['min_latency']}/{double(facts['avg_latency'])}/{facts['max_latency']}\n"
        f"Received: {facts['packets_received']}\nSent: {facts['packets_sent']}\n"
        f"Connections: {facts['num_alive_client_connections']}\nOutstanding: {facts['outstanding_requests']}\n"
        f"Zxid: {hexadecimal(engine.zxid)}\nMode: {facts['server_state']}\nNode count: {observed.node_count()}\n"
        + (f"Writes refused: {engine.refusal}\n" if engine.refusal else "")
    )


def srvr(observed: Observed, client: ClientConnection) -> str:
    """Answer with the server's statistics. The root is counted twice, as in ZooKeeper."""
    return f"Zookeeper version: {observed.version()}\n{_figures(observed)}"


def stat(observed: Observed, client: ClientConnection) -> str:
    """Answer with the server's statistics and its connections."""
    connections = observed.engine.connections
    clients = "".join(f"{brief(connected, asking=connected is client)}\n" for connected in connections)
    return f"Zookeeper version: {observed.version()}\nClients:\n{clients}\n{_figures(observed)}"


def brief(client: ClientConnection, *, asking: bool = False) -> str:
    """Return the line of one connection in the answer to ``stat``."""
    counts = f"queued=0,recved={client.received},sent={client.sent}"
    return f" {_java_address(client)}[{0 if asking else 1}]({counts})"


def _java_address(client: ClientConnection) -> str:
    """Return a client's address like Java: an IPv6 address has eight groups, without leading zeros."""
    host = client.host
    if ":" in host:
        from ipaddress import IPv6Address

        groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
        host = "[" + ":".join(f"{int(group, 16):x}" for group in groups) + "]"
    return f"/{host}:{client.port}"


def mntr(observed: Observed, client: ClientConnection) -> str:
    """Answer with one metric per line, for monitoring systems."""
    return "".join(
        f"zk_{name}\t{double(value) if isinstance(value, float) else value}\n"
        for name, value in monitor(observed).items()
    )


def cons(observed: Observed, client: ClientConnection) -> str:
    """Answer with the details of each connection."""
    connections = observed.engine.connections
    return "".join(f"{_full(connected, asking=connected is client)}\n" for connected in connections) + "\n"


def _full(client: ClientConnection, *, asking: bool) -> str:
    line = brief(client, asking=asking)
    session = client.session
    if session is None:
        return line
    heard = int(session.heard)  # a monotonic time, as in ZooKeeper; here of the latest request
    xid = f",lcxid={hexadecimal(client.last_xid)}" if client.last_xid >= 0 else ""
    return (
        f"{line[:-1]},sid={hexadecimal(session.id)},lop={last_operation(client)},est={client.since},"
        f"to={session.timeout_ms}{xid},lzxid={hexadecimal(client.last_zxid)},lresp={heard},"
        "llat=0,minlat=0,avglat=0,maxlat=0)"
    )


def conf(observed: Observed, client: ClientConnection) -> str:
    """Answer with the configuration, with ZooKeeper's keys and in its order."""
    return "".join(f"{name}={value}\n" for name, value in configuration(observed).items())


def gtmk(observed: Observed, client: ClientConnection) -> str:
    """Answer with the trace mask, which has no effect."""
    return str(observed.engine.trace_mask)


def set_trace_mask(engine: Engine, argument: bytes) -> bytes:
    """Set the trace mask to the eight bytes after ``stmk``, and answer with it."""
    if len(argument) < 8:
        return b""
    engine.trace_mask = int.from_bytes(argument[:8], "big", signed=True)
    return str(engine.trace_mask).encode()


def hash_(observed: Observed, client: ClientConnection) -> str:
    """Answer with an empty text, because the transaction log contains no digests."""
    return ""


def crst(observed: Observed, client: ClientConnection) -> str:
    """Reset the counters of all connections."""
    reset_connections(observed)
    return "Connection stats reset.\n"


def srst(observed: Observed, client: ClientConnection) -> str:
    """Reset the server's counters."""
    observed.engine.metrics.reset()
    return "Server stats reset.\n"


def dirs(observed: Observed, client: ClientConnection) -> str:
    """Answer with the sizes of the data directories, which are 0 for a server in memory."""
    facts = configuration(observed)
    return f"datadir_size: {facts['dataDirSize']}\nlogdir_size: {facts['dataLogSize']}\n"


def dump(observed: Observed, client: ClientConnection) -> str:
    """Answer with all sessions by deadline, and their ephemeral nodes."""
    engine = observed.engine
    alive = engine.sessions.alive
    sessions = {at: [f"\t{hexadecimal(each)}" for each in ids] for at, ids in sessions_by_deadline(engine).items()}
    connections: dict[int, list[str]] = {}
    for peer in engine.connections:
        deadline, session_id = (peer.session.deadline, peer.session.id) if peer.session else (peer.deadline, 0)
        line = f"\tip: {_java_address(peer)} sessionId: {hexadecimal(session_id)}"
        connections.setdefault(deadline, []).append(line)
    owners = engine.tree.ephemerals
    lines = ["SessionTracker dump:", f"Session Sets ({len(sessions)})/({len(alive)}):", *_buckets(engine, sessions)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for owner, paths in owners.items():
        lines += [f"{hexadecimal(owner)}:", *(f"\t{path}" for path in paths)]
    lines += ["Connections dump:", f"Connections Sets ({len(connections)})/({len(engine.connections)}):"]
    lines += _buckets(engine, connections)
    return "\n".join(lines) + "\n"


def _buckets(engine: Engine, by_deadline: dict[int, list[str]]) -> list[str]:
    from datetime import UTC, datetime

    lines = []
    for deadline in sorted(by_deadline):
        when = datetime.fromtimestamp((engine.now + deadline - engine.monotonic_ms) / 1000, UTC)
        lines += [
            f"{len(by_deadline[deadline])} expire at {when:%a %b %d %H:%M:%S} UTC {when.year}:",
            *by_deadline[deadline],
        ]
    return lines


def envi(observed: Observed, client: ClientConnection) -> str:
    """Answer with the server's environment, under Java's names."""
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in environment(observed).items())


def wchs(observed: Observed, client: ClientConnection) -> str:
    """Answer with the number of data watches. Connections whose watches have fired are included."""
    facts = watch_summary(observed)
    counts = f"{facts['num_connections']} connections watching {facts['num_paths']} paths"
    return f"{counts}\nTotal watches:{facts['num_total_watches']}\n"


def wchp(observed: Observed, client: ClientConnection) -> str:
    """Answer with the sessions that watch each path."""
    lines = []
    for path, session_ids in watching_by_path(observed.engine):
        lines += [path, *(f"\t{hexadecimal(session_id)}" for session_id in session_ids)]
    return "".join(f"{line}\n" for line in lines) + "\n"


def wchc(observed: Observed, client: ClientConnection) -> str:
    """Answer with the paths that each session watches."""
    lines = []
    for session_id, paths in watched_by_session(observed.engine):
        lines += [hexadecimal(session_id), *(f"\t{path}" for path in paths)]
    return "".join(f"{line}\n" for line in lines) + "\n"


ANSWERS: Final[dict[str, Callable[[Observed, ClientConnection], str]]] = {
    "conf": conf,
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
"""The commands without an argument."""


def answer(word: str, observed: Observed, client: ClientConnection, argument: bytes) -> bytes:
    """Return the answer to a command. Its argument is the data after the word."""
    if word == "stmk":
        return set_trace_mask(observed.engine, argument)
    return ANSWERS[word](observed, client).encode()
