"""``zoolet status``: whether servers serve, in one line."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from zoolet.client.cli.four_letters import NotExecutedError, ask
from zoolet.client.cli.options import DEFAULT_HOSTS, SERVERS, OptionError, add_timeout, add_tls, tls_of
from zoolet.event_loop import run_loop

if TYPE_CHECKING:  # a daemon imports this module for its parser
    import ssl

    from zoolet.client.wire.hosts import Address


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "status",
        help="say in one line whether servers serve",
        description="Say in one line whether servers serve, writes included. The exit code is 0 if each of them does, "
        "otherwise 1. They are asked with the four-letter command srvr.",
    )
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", default=DEFAULT_HOSTS, help=SERVERS)
    add_timeout(parser, 5.0, "for each server")
    add_tls(parser)
    parser.set_defaults(command=_status)


class Health(NamedTuple):
    """The status of one server.

    Args:
        serves: Whether it serves clients.
        text: How, or why not.
        mode: ``standalone``, ``leader``, ``follower`` and so on; empty if it does not serve.
    """

    serves: bool
    text: str
    mode: str = ""


def _status(options: argparse.Namespace, definitions: list[str]) -> int:
    from zoolet.client.wire.hosts import Hosts

    try:
        hosts, tls = Hosts.parse(options.hosts), tls_of(options)
    except (ValueError, OptionError) as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    return run_loop(_report(hosts.addresses, options.timeout, tls))


async def _report(addresses: tuple[Address, ...], timeout: float, tls: ssl.SSLContext | None) -> int:
    healths = await asyncio.gather(*(_ask(address, timeout, tls) for address in addresses))
    serving = sum(health.serves for health in healths)
    if len(addresses) == 1:
        print(f"{addresses[0]} {healths[0].text}")
    else:
        each = "; ".join(
            f"{address} {health.mode or health.text}" for address, health in zip(addresses, healths, strict=True)
        )
        print(f"{serving} of {len(addresses)} serve: {each}")
    return 0 if serving == len(addresses) else 1


async def _ask(address: Address, timeout: float, tls: ssl.SSLContext | None) -> Health:
    """Ask one server how it is."""
    try:
        answer = await ask(address, "srvr", timeout, tls)
    except NotExecutedError:
        return Health(False, "answers, but may not say how it is: srvr is not in 4lw.commands.whitelist")
    except OSError as error:
        return Health(False, str(error))
    return read_answer(answer)


def read_answer(text: str) -> Health:
    """Return what an answer to ``srvr`` means.

    Source: ServerStats.toString; AbstractFourLetterCommand.ZK_NOT_SERVING.
    """
    facts = {name: value for name, _, value in (line.partition(": ") for line in text.splitlines())}
    mode = re.sub(r"[^a-z-]", "", facts.get("Mode", ""))
    if not mode:
        return Health(
            False, "runs, and does not serve" if "not currently serving" in text else "is not a ZooKeeper server"
        )
    if mode == "read-only":
        reason = facts.get("Writes refused", "")
        shown_reason = "".join(character if character.isprintable() else "?" for character in reason[:200])
        return Health(False, "refuses writes" + (f": {shown_reason}" if reason else ": it is read-only"))
    shown = [f"serves as {mode}"]
    for name, before, behind in (
        ("Zxid", "zxid ", ""),
        ("Node count", "", " nodes"),
        ("Connections", "", " connections"),
        ("Outstanding", "", " outstanding"),
        ("Latency min/avg/max", "latency ", " ms"),
    ):
        value = re.sub(r"[^0-9a-fx./-]", "", facts.get(name, ""))
        if value:
            shown.append(f"{before}{value}{behind}")
    return Health(True, ", ".join(shown), mode)
