"""``zoolet top``: live statistics of servers: rates, latencies, and the connections with the most requests."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ..client.four_letters import Sample, measure_traffic, packet_rates, take_sample
from .addresses import server_message
from .event_loop import run_loop
from .options import DEFAULT_HOSTS, SERVERS_HELP, add_timeout, add_tls, parse_servers, seconds
from .usage import add_example, columns, is_dumb_terminal, whole_number

if TYPE_CHECKING:  # a daemon imports this module for its parser
    import ssl

    from ..client.wire.hosts import Address

QUIT_KEYS: Final = (b"q", b"Q", b"\x04")
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
MAX_CONNECTIONS: Final = 15
"""Maximum number of connections that are shown for each server."""
TOTALS: Final = {
    "num_alive_connections": ("connection", "connections"),
    "global_sessions": ("session", "sessions"),
    "znode_count": ("node", "nodes"),
    "ephemerals_count": ("ephemeral", "ephemeral"),
    "watch_count": ("watch", "watches"),
    "approximate_data_size": ("byte", "bytes"),
}
"""Totals that are shown if the server reports them: the mntr key, and the singular and plural in the output."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "top",
        help="show live statistics",
        description="Show live statistics of servers: requests and packets per second, latencies, connections, "
        "watches, nodes, and the connections with the most requests. The servers must allow the four-letter commands "
        "mntr and cons in 4lw.commands.whitelist. If they allow only srvr, the command shows less. Press q to quit.",
    )
    add_example(parser, "zoolet top zk1:2181,zk2:2181 --interval 5")
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", default=DEFAULT_HOSTS, help=SERVERS_HELP)
    parser.add_argument(
        "-n",
        type=whole_number(1, (1 << 31) - 1),
        default=0,
        metavar="COUNT",
        help="stop after COUNT updates (default: until you press q)",
    )
    parser.add_argument(
        "--interval", type=seconds, default=2.0, metavar="SECONDS", help="seconds between updates (default 2)"
    )
    parser.add_argument("--json", action="store_true", help="print each update as one line of JSON")
    add_timeout(parser, 5.0, "time limit for each server")
    add_tls(parser)
    parser.set_defaults(command=lambda options, definitions: _run_top(options))


def _run_top(options: argparse.Namespace) -> int:
    hosts, tls = parse_servers(options.hosts, options, with_path=False)
    return run_loop(_follow(hosts.addresses, options, tls))


async def _follow(addresses: tuple[Address, ...], options: argparse.Namespace, tls: ssl.SSLContext | None) -> int:
    updating = asyncio.ensure_future(_update_screen(addresses, options, tls))

    def press(key: bytes) -> None:
        if key in QUIT_KEYS:
            updating.cancel()  # immediately, even if a server does not answer

    with _read_keys(press):
        await asyncio.wait([updating])
    return 0 if updating.cancelled() else updating.result()


async def _update_screen(
    addresses: tuple[Address, ...], options: argparse.Namespace, tls: ssl.SSLContext | None
) -> int:
    before: dict[Address, Sample] = {}
    for times in itertools.count(1):
        answers = await asyncio.gather(*(take_sample(address, options.timeout, tls) for address in addresses))
        samples = dict(zip(addresses, answers, strict=True))
        _print_samples(samples, before, options)
        if times == options.n:
            return 0 if any(each.numbers for each in samples.values()) else 1
        before = samples
        await asyncio.sleep(options.interval)
    return 0


def _resume_key_mode(number: int) -> None:
    """Restore single-key input after Ctrl-Z and ``fg``: the user's shell has changed the mode of the terminal."""
    import termios
    import tty

    with contextlib.suppress(OSError, termios.error):  # the terminal was closed
        if os.tcgetpgrp(number) == os.getpgrp():  # a job in the background must not change the mode
            tty.setcbreak(number)


@contextlib.contextmanager
def _read_keys(pressed: Callable[[bytes], None]) -> Iterator[None]:
    """Call *pressed* with each key that is typed at the terminal, without waiting for Enter, during the block."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    loop.add_reader(number, lambda: pressed(os.read(number, 1)))
    loop.add_signal_handler(signal.SIGCONT, _resume_key_mode, number)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _print_samples(samples: dict[Address, Sample], before: dict[Address, Sample], options: argparse.Namespace) -> None:
    if options.json:
        import json

        value = {
            str(address): {
                **each.numbers,
                **packet_rates(each, before.get(address)),
                "state": each.state,
                "connections": each.connections,
            }
            for address, each in samples.items()
        }
        print(json.dumps(value), flush=True)
        return
    from .shell.texts import printable

    texts = [time.strftime("%H:%M:%S")]
    for address, each in samples.items():
        texts += format_server(str(address), each, before.get(address))
    is_terminal = sys.stdout.isatty()
    clear, width = (CLEAR_SCREEN, columns()) if is_terminal and not is_dumb_terminal() else ("", None)
    print(clear + "\n".join(printable(text)[:width] for text in texts), flush=True)


def format_server(address: str, now: Sample, before: Sample | None) -> list[str]:
    """Return the lines about one server: state, rates, latencies, totals and connections."""
    if not now.numbers:
        return [server_message(address, now.state)]
    n = now.numbers.get
    rate = packet_rates(now, before)
    per_second = "{packets_received_per_second:,.0f} in/s, {packets_sent_per_second:,.0f} out/s, "
    requests = per_second.format(**rate) if len(rate) == 2 else ""
    texts = [
        f"{address}  {now.state}",
        f"  {requests}{n('outstanding_requests', 0):,.0f} outstanding, latency min/avg/max "
        f"{n('min_latency', 0):g}/{n('avg_latency', 0):g}/{n('max_latency', 0):g} ms",
        "  "
        + ", ".join(f"{n(name):,.0f} {words[n(name) != 1]}" for name, words in TOTALS.items() if name in now.numbers),
    ]
    if now.problem:
        return [*texts, f"  no connections shown: the server {now.problem}"]
    return texts + connection_lines(now, before)


def connection_lines(now: Sample, before: Sample | None) -> list[str]:
    """Return a heading and a line for each of the busiest connections, or nothing if there are none."""
    rows = [each for each in measure_traffic(now, before) if "sid" in each.facts]  # only connections with a session
    texts = [f"  {'session':>20} {'client':<24} {'recent':>8} {'all':>10} {'last':<6} {'avg ms':>7} {'timeout':>8}"]
    texts += [
        f"  {facts['sid']:>20} {address:<24} {lately:>8,} {received:>10,} {facts.get('lop', ''):<6} "
        f"{facts.get('avglat', ''):>7} {facts.get('to', ''):>8}"
        for lately, received, address, facts in rows[:MAX_CONNECTIONS]
    ]
    if len(rows) > MAX_CONNECTIONS:
        texts.append(f"  and {len(rows) - MAX_CONNECTIONS:,} more")
    return texts if len(texts) > 1 else []
