"""``zoolet top``: what servers are doing, live: rates, latencies, and the connections with the most requests."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from zoolet.client.cli.four_letters import NotExecutedError, ask
from zoolet.client.cli.options import DEFAULT_HOSTS, SERVERS, OptionError, add_timeout, add_tls, seconds, tls_of
from zoolet.event_loop import run_loop

if TYPE_CHECKING:
    import ssl

    # a daemon imports this module for its parser
    from zoolet.client.wire.hosts import Address

QUIT: Final = (b"q", b"Q", b"\x04")
CLEAR: Final = "\x1b[H\x1b[2J"
MAX_CONNECTIONS: Final = 15
"""Connections of each server that are shown."""
COUNTS: Final = {
    "num_alive_connections": "connections",
    "global_sessions": "sessions",
    "znode_count": "nodes",
    "ephemerals_count": "ephemeral",
    "watch_count": "watches",
    "approximate_data_size": "bytes",
}
"""Totals to show, by mntr key, if the server reports them."""
SRVR: Final = {
    "packets_received": "Received",
    "packets_sent": "Sent",
    "num_alive_connections": "Connections",
    "outstanding_requests": "Outstanding",
    "znode_count": "Node count",
}
"""The mntr keys of the numbers in srvr."""
_NUMBER: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?")
MAX_LINE: Final = 1000
"""Characters of a line of cons; what is longer is none."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "top",
        help="show what servers are doing, live",
        description="Show what servers are doing, again and again: requests and packets a second, latencies, "
        "connections, watches, nodes; and the connections with the most requests. They are asked with the four-letter "
        "commands mntr and cons, or srvr; 4lw.commands.whitelist has to allow them.",
    )
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", default=DEFAULT_HOSTS, help=SERVERS)
    parser.add_argument("-n", type=count, default=0, metavar="COUNT", help="end after so many times (without end)")
    parser.add_argument("--interval", type=seconds, default=2.0, metavar="SECONDS", help="how often (2)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON each time")
    add_timeout(parser, 5.0, "for each server")
    add_tls(parser)
    parser.set_defaults(command=lambda options, definitions: _top(options))


def count(text: str) -> int:
    """Return a number of times.

    Raises:
        ValueError: It is none from 1 on.
    """
    value = int(text)
    if not 0 < value < 1 << 31:
        raise ValueError(text)
    return value


class Sample(NamedTuple):
    """The answer of one server at one moment.

    Args:
        at: When, in seconds of a monotonic clock.
        numbers: The numbers of mntr, without the prefix ``zk_``.
        state: ``standalone``, ``leader``, ``follower`` and so on; or why there are no numbers.
        connections: The connections of cons: the address, and the facts of each.
        problem: Why there are none.
    """

    at: float
    numbers: dict[str, float]
    state: str
    connections: dict[str, dict[str, str]] = {}
    problem: str = ""


def _top(options: argparse.Namespace) -> int:
    from zoolet.client.wire.hosts import Hosts

    try:
        hosts, tls = Hosts.parse(options.hosts), tls_of(options)
    except (ValueError, OptionError) as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    try:
        return run_loop(_follow(hosts.addresses, options, tls))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # the reader of the output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


async def _follow(addresses: tuple[Address, ...], options: argparse.Namespace, tls: ssl.SSLContext | None) -> int:
    before: dict[Address, Sample] = {}
    quitting = asyncio.Event()
    with _keys(lambda key: quitting.set() if key in QUIT else None):
        for times in itertools.count(1):
            answers = await asyncio.gather(*(sample(address, options.timeout, tls) for address in addresses))
            samples = dict(zip(addresses, answers, strict=True))
            _print(samples, before, options)
            if times == options.n:
                return 0 if any(each.numbers for each in samples.values()) else 1
            before = samples
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(quitting.wait(), options.interval)
                break
    return 0


@contextlib.contextmanager
def _keys(pressed: Callable[[bytes], None]) -> Iterator[None]:
    """Call a function with each key that is pressed at the terminal, without waiting for the end of a line."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    loop.add_reader(number, lambda: pressed(os.read(number, 1)))
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _print(samples: dict[Address, Sample], before: dict[Address, Sample], options: argparse.Namespace) -> None:
    if options.json:
        import json

        value = {
            str(address): {
                **each.numbers,
                **rates(each, before.get(address)),
                "state": each.state,
                "connections": each.connections,
            }
            for address, each in samples.items()
        }
        print(json.dumps(value), flush=True)
        return
    from zoolet.client.shell.texts import printable

    texts = [time.strftime("%H:%M:%S")]
    for address, each in samples.items():
        texts += described(str(address), each, before.get(address))
    clear = CLEAR if sys.stdout.isatty() else ""
    print(clear + "\n".join(printable(text) for text in texts), flush=True)


async def sample(address: Address, timeout: float, tls: ssl.SSLContext | None = None) -> Sample:
    """Ask one server what it is doing."""
    try:
        try:
            numbers, state = read_mntr(await ask(address, "mntr", timeout, tls))
        except NotExecutedError:  # that is ZooKeeper's default; srvr it answers
            numbers, state = read_srvr(await ask(address, "srvr", timeout, tls))
    except (OSError, NotExecutedError) as error:
        return Sample(time.monotonic(), {}, str(error))
    if not numbers:
        return Sample(time.monotonic(), {}, "does not serve")
    try:
        connections = read_cons(await ask(address, "cons", timeout, tls))
    except (OSError, NotExecutedError) as error:
        return Sample(time.monotonic(), numbers, state, problem=str(error))
    return Sample(time.monotonic(), numbers, state, connections)


def read_mntr(text: str) -> tuple[dict[str, float], str]:
    """Return the numbers of an answer to mntr, without the prefix, and the state of the server."""
    numbers: dict[str, float] = {}
    state = ""
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        name = name.removeprefix("zk_")
        if name == "server_state":
            state = re.sub(r"[^a-z-]", "", value)
        elif _NUMBER.fullmatch(value.strip()) and re.fullmatch(r"[\w{}=\",.]+", name):
            numbers[name] = float(value)
    return numbers, state


def read_srvr(text: str) -> tuple[dict[str, float], str]:
    """Return what an answer to srvr has of the numbers of mntr, and the state of the server."""
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in text.split("\n"))}
    latencies = [*facts.get("Latency min/avg/max", "").split("/"), "", "", ""][:3]
    named = {name: facts.get(fact, "") for name, fact in SRVR.items()}
    named |= dict(zip(("min_latency", "avg_latency", "max_latency"), latencies, strict=True))
    numbers = {name: float(value) for name, value in named.items() if _NUMBER.fullmatch(value)}
    return numbers, re.sub(r"[^a-z-]", "", facts.get("Mode", ""))


def read_cons(text: str) -> dict[str, dict[str, str]]:
    """Return the connections of an answer to cons by address, and what it says of each."""
    connections = {}
    for line in text.split("\n"):
        address, bracket, rest = line[:MAX_LINE].strip().removeprefix("/").partition("[")
        _, parenthesis, facts = rest.partition("(")
        if bracket and parenthesis and line.rstrip().endswith(")") and len(line) <= MAX_LINE:
            pairs = (pair.partition("=") for pair in facts.rstrip(")").split(","))
            connections[address] = {name: value for name, _, value in pairs}
    return connections


def rates(now: Sample, before: Sample | None) -> dict[str, float]:
    """Return what happened a second between two samples; nothing if there is only one."""
    if before is None or not before.numbers or now.at <= before.at:
        return {}
    between = now.at - before.at
    return {
        f"{name}_per_second": round((now.numbers[name] - before.numbers[name]) / between, 1)
        for name in ("packets_received", "packets_sent")
        if before.numbers.get(name, float("inf")) <= now.numbers.get(name, -1)
    }


def described(address: str, now: Sample, before: Sample | None) -> list[str]:
    """Return the lines about one server."""
    if not now.numbers:
        return [f"{address}  {now.state}"]
    n = now.numbers.get
    rate = rates(now, before)
    per_second = "{packets_received_per_second:,.0f} in/s, {packets_sent_per_second:,.0f} out/s, "
    requests = per_second.format(**rate) if len(rate) == 2 else ""
    texts = [
        f"{address}  {now.state}",
        f"  {requests}{n('outstanding_requests', 0):,.0f} outstanding, latency min/avg/max "
        f"{n('min_latency', 0):g}/{n('avg_latency', 0):g}/{n('max_latency', 0):g} ms",
        "  " + ", ".join(f"{now.numbers[name]:,.0f} {what}" for name, what in COUNTS.items() if name in now.numbers),
    ]
    if now.problem:
        return [*texts, f"  no connections are shown: it {now.problem}"]
    return texts + connection_lines(now, before)


def connection_lines(now: Sample, before: Sample | None) -> list[str]:
    """Return a line for each of the busiest connections."""
    earlier = before.connections if before is not None else {}
    rows = []
    for address, facts in now.connections.items():
        if "sid" not in facts:  # it has no session
            continue
        received = number_of(facts, "recved")
        old = earlier.get(address)
        lately = received - number_of(old, "recved") if old is not None else 0
        rows.append((lately, received, address, facts))
    rows.sort(reverse=True, key=lambda row: row[:2])
    texts = [f"  {'session':>20} {'client':<24} {'recent':>8} {'all':>10} {'last':<6} {'avg ms':>7} {'timeout':>8}"]
    texts += [
        f"  {facts['sid']:>20} {address:<24} {lately:>8,} {received:>10,} {facts.get('lop', ''):<6} "
        f"{facts.get('avglat', ''):>7} {facts.get('to', ''):>8}"
        for lately, received, address, facts in rows[:MAX_CONNECTIONS]
    ]
    if len(rows) > MAX_CONNECTIONS:
        texts.append(f"  and {len(rows) - MAX_CONNECTIONS:,} more")
    return texts if len(texts) > 1 else []


def number_of(facts: Mapping[str, str], name: str) -> int:
    """Return a number that cons has of a connection; 0 if it has none."""
    text = facts.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 20 else 0
