"""``zoolet status``: a check that servers accept reads and writes, with a result in one line."""

from __future__ import annotations

import argparse
import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client.four_letters import NotExecutedError, not_serving_reason, send_command, srvr_facts
from .addresses import server_message
from .event_loop import run_loop
from .options import DEFAULT_HOSTS, SERVERS_HELP, add_timeout, add_tls, parse_servers
from .usage import add_example

if TYPE_CHECKING:  # a daemon imports this module for its parser
    import ssl

    from ..client.wire.hosts import Address


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "status",
        help="check that servers accept reads and writes",
        description="Check whether servers accept reads and writes, using the four-letter command srvr, and print "
        "the result in one line. Exit codes: 0 all servers do, 1 at least one does not.",
    )
    add_example(parser, "zoolet status zk1:2181,zk2:2181")
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", default=DEFAULT_HOSTS, help=SERVERS_HELP)
    add_timeout(parser, 5.0, "time limit for each server")
    add_tls(parser)
    parser.set_defaults(command=_run_status)


SINGULAR_NOUNS: Final = {" nodes": " node", " connections": " connection"}


class Health(NamedTuple):
    """The result of a check of one server.

    Args:
        serves: Whether the server accepts reads and writes.
        text: Rest of a sentence about the server, which starts with its address.
        mode: The mode, such as ``standalone`` or ``leader``; empty unless the server accepts reads and writes.
    """

    serves: bool
    text: str
    mode: str = ""


def _run_status(options: argparse.Namespace, definitions: list[str]) -> int:
    hosts, tls = parse_servers(options.hosts, options, with_path=False)
    return run_loop(_report(hosts.addresses, options.timeout, tls))


async def _report(addresses: tuple[Address, ...], timeout: float, tls: ssl.SSLContext | None) -> int:
    healths = await asyncio.gather(*(_query_health(address, timeout, tls) for address in addresses))
    serving = sum(health.serves for health in healths)
    if len(addresses) == 1:
        print(server_message(addresses[0], healths[0].text))
    else:
        each = "; ".join(
            server_message(address, health.mode or health.text)
            for address, health in zip(addresses, healths, strict=True)
        )
        print(f"{serving} of {len(addresses)} servers accept reads and writes: {each}")
    return 0 if serving == len(addresses) else 1


async def _query_health(address: Address, timeout: float, tls: ssl.SSLContext | None) -> Health:
    """Query the health of one server."""
    try:
        answer = await send_command(address, "srvr", timeout, tls)
    except NotExecutedError:
        return Health(False, "is running, but its state is unknown: srvr is not in 4lw.commands.whitelist")
    except OSError as error:
        return Health(False, str(error))
    return parse_srvr(answer)


def parse_srvr(text: str) -> Health:
    """Parse an answer to ``srvr``, and return the health of the server."""
    facts = srvr_facts(text)
    mode = facts["Mode"]
    if not mode:
        return Health(False, not_serving_reason(text))
    if mode == "read-only":
        reason = facts.get("Writes refused", "")
        shown_reason = "".join(character if character.isprintable() else "?" for character in reason[:200])
        return Health(False, f"refuses writes: {shown_reason if reason else 'read-only mode'}")
    shown = [f"serves as {mode}"]
    for name, before, behind in (
        ("Zxid", "zxid ", ""),
        ("Node count", "", " nodes"),
        ("Connections", "", " connections"),
        ("Outstanding", "", " outstanding"),
        ("Latency min/avg/max", "latency min/avg/max ", " ms"),
    ):
        value = re.sub(r"[^0-9a-fx./-]", "", facts.get(name, ""))
        if value:
            shown.append(f"{before}{value}{SINGULAR_NOUNS.get(behind, behind) if value == '1' else behind}")
    return Health(True, ", ".join(shown), mode)
