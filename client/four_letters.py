"""Four-letter commands: send one to a server, and parse the answers to mntr, srvr and cons."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.addresses import host_and_port
from .aio.dial import dial_streams, open_failure
from .wire.diagnosis import CLOSED, TLS_ALERT, early_close_reason, foreign_answer_reason, no_answer_reason
from .wire.hosts import Address, ServerAddress

if TYPE_CHECKING:
    import ssl

MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum size of an answer in bytes. The rest is not read."""
ANSWER_PREFIXES: Final = (b"zookeeper", b"zk_", b"this zookeeper", b"environment", b" /", b"/")
"""Prefixes of the answers of ZooKeeper servers, in lower case."""
NOT_WHITELISTED: Final = "is not executed because it is not in the whitelist"

SRVR_NAMES: Final = {
    "packets_received": "Received",
    "packets_sent": "Sent",
    "num_alive_connections": "Connections",
    "outstanding_requests": "Outstanding",
    "znode_count": "Node count",
}
"""Names of the numbers in a srvr answer, by the mntr key for the same number."""
_NUMBER_PATTERN: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?")
_CONNECTION_PATTERN: Final = re.compile(r"/?([^\s(]+)\[\d{1,10}\]\((.*)\)")
MAX_LINE_LENGTH: Final = 1000
"""Maximum number of characters in a line of cons. Longer lines are ignored."""


class NotExecutedError(Exception):
    """The server does not execute the command."""


async def send_command(address: Address, command: str, timeout: float, tls: ssl.SSLContext | None = None) -> str:
    """Return a server's answer to a four-letter command.

    Raises:
        OSError: The server does not answer, or not within *timeout* seconds. The message completes a sentence that
            starts with the server's address.
        NotExecutedError: The command is not in the server's whitelist.
    """
    answer = bytearray()
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await dial_streams(ServerAddress(address, address.host), tls)
            try:
                writer.write(command.encode())
                while len(answer) < MAX_ANSWER_BYTES and (more := await reader.read(1 << 16)):
                    answer += more
            finally:
                writer.close()
    except TimeoutError:
        raise OSError(f"does not answer: {unfinished_reason(bytes(answer), timeout, tls is not None)}") from None
    except UnicodeError:  # the host name cannot be encoded
        raise OSError("does not answer: not a valid host name") from None
    except OSError as error:
        raise OSError(f"does not answer: {open_failure(error, timeout, tls is not None)}") from None
    if not answer or answer.startswith(TLS_ALERT):
        reason = foreign_answer_reason(bytes(answer)) if answer else early_close_reason(CLOSED, tls is not None)
        raise OSError(f"does not answer: {reason}")
    text = answer.decode("utf-8", "replace")
    if NOT_WHITELISTED in text:
        raise NotExecutedError(f"answers, but {command} is not in 4lw.commands.whitelist")
    return text


def unfinished_reason(answer: bytes, seconds: float, tls: bool) -> str:
    """Return the reason why an answer was incomplete after *seconds*.

    A server that does not speak the ZooKeeper protocol may send a greeting and wait for a reply.
    """
    is_foreign = bool(answer) and not answer.lower().startswith(ANSWER_PREFIXES)
    return foreign_answer_reason(answer) if is_foreign else no_answer_reason(seconds, tls)


# --- parsing answers ---


def not_serving_reason(answer: str) -> str:
    """Return the reason why a server's answer contains no metrics, as a text that follows the server's address.

    Source: AbstractFourLetterCommand.ZK_NOT_SERVING.
    """
    if "not currently serving" in answer:
        return "is running but not serving requests"
    return f"does not answer: {foreign_answer_reason(answer.encode())}"


class Sample(NamedTuple):
    """One server's metrics and connections at one moment.

    Args:
        at: Time of the sample, in seconds of a monotonic clock.
        numbers: Metrics by their mntr name without the prefix ``zk_``; fewer if only srvr is answered, or empty.
        state: ``standalone``, ``leader``, ``follower`` and so on, or the reason why *numbers* is empty.
        connections: The facts that cons reports for each connection, by address.
        problem: Reason why *connections* is missing; empty if there is none.
    """

    at: float
    numbers: dict[str, float]
    state: str
    connections: dict[str, dict[str, str]] = {}
    problem: str = ""


async def take_sample(address: Address, timeout: float, tls: ssl.SSLContext | None = None) -> Sample:
    """Query one server's metrics and connections. Errors are not raised, but described in the result."""
    try:
        try:
            answer = await send_command(address, "mntr", timeout, tls)
            numbers, state = parse_mntr(answer)
        except NotExecutedError:  # by default ZooKeeper refuses mntr but answers srvr
            answer = await send_command(address, "srvr", timeout, tls)
            numbers, state = parse_srvr(answer)
    except (OSError, NotExecutedError) as error:
        return Sample(time.monotonic(), {}, str(error))
    if not numbers:
        return Sample(time.monotonic(), {}, not_serving_reason(answer))
    try:
        connections = parse_cons(await send_command(address, "cons", timeout, tls))
    except (OSError, NotExecutedError) as error:
        return Sample(time.monotonic(), numbers, state, problem=str(error))
    return Sample(time.monotonic(), numbers, state, connections)


def parse_mntr(text: str) -> tuple[dict[str, float], str]:
    """Return the metrics in an answer to mntr, by name without the prefix ``zk_``, and the state of the server."""
    numbers: dict[str, float] = {}
    state = ""
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        name = name.removeprefix("zk_")
        if name == "server_state":
            state = re.sub(r"[^a-z-]", "", value)
        elif _NUMBER_PATTERN.fullmatch(value.strip()) and re.fullmatch(r"[\w{}=\",.]+", name):
            numbers[name] = float(value)
    return numbers, state


def srvr_facts(text: str) -> dict[str, str]:
    """Return the facts in an answer to srvr by name. The mode consists only of lower-case letters and hyphens.

    Source: ServerStats.toString.
    """
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in text.split("\n"))}
    facts["Mode"] = re.sub(r"[^a-z-]", "", facts.get("Mode", ""))
    return facts


def parse_srvr(text: str) -> tuple[dict[str, float], str]:
    """Return the numbers in an answer to srvr, under their mntr names, and the state of the server."""
    facts = srvr_facts(text)
    latencies = [*facts.get("Latency min/avg/max", "").split("/"), "", "", ""][:3]
    named = {name: facts.get(fact, "") for name, fact in SRVR_NAMES.items()}
    named |= dict(zip(("min_latency", "avg_latency", "max_latency"), latencies, strict=True))
    numbers = {name: float(value) for name, value in named.items() if _NUMBER_PATTERN.fullmatch(value)}
    return numbers, facts["Mode"]


def parse_cons(text: str) -> dict[str, dict[str, str]]:
    """Return the facts that an answer to cons reports for each connection, by address."""
    connections = {}
    for line in text.split("\n"):
        if len(line) <= MAX_LINE_LENGTH and (match := _CONNECTION_PATTERN.fullmatch(line.strip())) is not None:
            pairs = (pair.partition("=") for pair in match[2].split(","))
            connections[_short_address(match[1])] = {name: value for name, _, value in pairs}
    return connections


def _short_address(address: str) -> str:
    """Return an address with the short form of IPv6: ``[::1]:2181``. Java prints all eight groups."""
    if address.count(":") == 1:
        return address
    from ipaddress import ip_address

    host, _, port = address.rpartition(":")
    try:
        return host_and_port(str(ip_address(host.strip("[]"))), int(port))
    except ValueError:
        return address


def packet_rates(now: Sample, before: Sample | None) -> dict[str, float]:
    """Return the packets received and sent per second between two samples.

    Without an earlier sample, the result is empty. A number that is missing or has decreased is left out.
    """
    if before is None or not before.numbers or now.at <= before.at:
        return {}
    between = now.at - before.at
    return {
        f"{name}_per_second": round((now.numbers[name] - before.numbers[name]) / between, 1)
        for name in ("packets_received", "packets_sent")
        if before.numbers.get(name, float("inf")) <= now.numbers.get(name, -1)
    }


class Traffic(NamedTuple):
    """The requests of one connection.

    Args:
        recent: Number of requests since the previous sample; 0 if that sample does not contain the connection.
        requests: Number of requests that the server has counted for the connection.
        address: The address of the client.
        facts: The facts that cons reports.
    """

    recent: int
    requests: int
    address: str
    facts: dict[str, str]


def measure_traffic(now: Sample, before: Sample | None) -> list[Traffic]:
    """Return the requests of each connection between two samples, the busiest first."""
    found = []
    for address, facts in now.connections.items():
        requests = cons_number(facts, "recved")
        earlier = before.connections.get(address) if before is not None else None
        lately = requests - cons_number(earlier, "recved") if earlier is not None else 0
        found.append(Traffic(lately, requests, address, facts))
    return sorted(found, reverse=True, key=lambda each: each[:2])


def cons_number(facts: Mapping[str, str], name: str) -> int:
    """Return a number that cons reports for a connection; 0 if it is missing or invalid."""
    text = facts.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 20 else 0
