"""Host names: each of their IP addresses is a server, and a slow resolver delays nothing else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from support.simulation import Connect
from support.states import read_until
from support.tls_clients import client_context
from support.waiting import DEADLINE_S, PROMPT_S
from support.waiting import until as holds

from zoolet.client import Backoff, Client, ConnectionLossError, State, blocking
from zoolet.testing import Server

ONE, TWO = "127.0.0.1", "127.0.0.2"
"""Two addresses of this machine. Linux accepts connections to all addresses that start with 127."""
Resolve = Callable[[str], list[str]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Resolve], list[str]]]:
    """A function that replaces the system's resolver, and returns the list to which each requested name is added."""
    real = socket.getaddrinfo

    def install(resolve: Resolve) -> list[str]:
        asked: list[str] = []

        def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
            if host in (ONE, TWO):
                return list(real(host, port, *args, **options))
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in resolve(host)]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return asked

    return install


@pytest.fixture
def silent_resolver() -> Iterator[Resolve]:
    """A resolver that answers only when the test is over."""
    over = threading.Event()

    def resolve(host: str) -> list[str]:
        over.wait(DEADLINE_S)
        return []

    yield resolve
    over.set()


# --- servers that fail in different ways ---


@asynccontextmanager
async def _closed_port(port: int) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _silent_server(port: int) -> AsyncIterator[None]:
    with socket.create_server((TWO, port)):
        yield


@asynccontextmanager
async def _closing_server(port: int) -> AsyncIterator[None]:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), TWO, port):
        yield


@pytest.mark.parametrize("broken", [_closed_port, _silent_server, _closing_server])
async def test_client_tries_each_address_of_host_name(broken: Any, resolver: Any, connect: Connect) -> None:
    resolver(lambda host: [TWO, ONE])
    async with Server() as server, broken(server.port):
        clients = [Client(f"zk.example:{server.port}", 2.0) for _ in range(4)]
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as starting:
            for client in clients:
                starting.create_task(client.start())

        assert len(server.sessions()) == 4
        for client in clients:
            await client.aclose()


async def test_clients_use_all_addresses_of_host_name(resolver: Any) -> None:
    resolver(lambda host: [ONE, TWO])
    async with Server(host=ONE) as one, Server(host=TWO, port=one.port) as two:
        clients = [Client(f"zk.example:{one.port}") for _ in range(16)]
        for client in clients:
            await client.start()

        assert len(one.sessions()) + len(two.sessions()) == 16
        assert one.sessions()
        assert two.sessions()
        for client in clients:
            await client.aclose()


async def test_host_name_is_looked_up_for_each_connection_round(resolver: Any, connect: Connect) -> None:
    async with Server(host=ONE) as first, Server(host=TWO, port=first.port) as second:
        here = [ONE]
        asked = resolver(lambda host: list(here))
        zk = await connect(f"zk.example:{first.port}", backoff=Backoff(first=0.001, longest=0.01), timeout=1.0)
        here[0] = TWO
        first.refuse_connections()
        states = zk.states()
        first.drop(zk)
        await read_until(states, State.LOST)
        await read_until(states, State.CONNECTED)

        assert set(asked) == {"zk.example"}
        assert list(second.sessions()) == [zk.session_id]
        await zk.aclose()


# --- slow resolvers ---


async def test_unresolved_host_name_does_not_delay_second_server(resolver: Any, silent_resolver: Resolve) -> None:
    asked = resolver(silent_resolver)
    async with Server() as server, asyncio.timeout(PROMPT_S), Client(f"zk.example:1,{server.hosts}"):
        assert asked == ["zk.example"]


async def test_error_contains_unresolved_name(resolver: Any, silent_resolver: Resolve) -> None:
    resolver(silent_resolver)

    with pytest.raises(ConnectionLossError, match=r"zk\.example:2181: the host name was not resolved within"):
        await Client("zk.example", 0.3).start()


async def test_host_name_has_at_most_one_lookup_at_a_time(resolver: Any, silent_resolver: Resolve) -> None:
    asked = resolver(silent_resolver)

    with pytest.raises(ConnectionLossError):
        await Client("zk.example", 0.3, backoff=Backoff(first=0.001, longest=0.001)).start()

    assert asked == ["zk.example"]


async def test_last_known_addresses_are_used_without_lookup_answer(
    resolver: Any, silent_resolver: Resolve, connect: Connect
) -> None:
    async with Server() as server:
        answers: list[Resolve] = [lambda host: [ONE]]
        resolver(lambda host: answers[0](host))
        zk = await connect(f"zk.example:{server.port}")
        states = zk.states()
        answers[0] = silent_resolver

        server.drop(zk)

        await read_until(states, State.SUSPENDED)
        await read_until(states, State.CONNECTED)
        await zk.aclose()


def test_loop_can_end_during_lookup(resolver: Any, silent_resolver: Resolve) -> None:
    asked = resolver(silent_resolver)

    async def main() -> None:
        client = Client("zk.example")
        await client.start(wait=False)
        await holds(lambda: asked)
        await client.aclose()

    asyncio.run(main())

    assert asked == ["zk.example"]


async def test_host_name_is_looked_up_again_after_any_lookup_error(resolver: Any, connect: Connect) -> None:
    async with Server() as server:
        answers: list[Any] = [RuntimeError("blocked by a tool"), [ONE]]

        def resolve(host: str) -> list[str]:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        resolver(resolve)
        zk = await connect(f"zk.example:{server.port}", backoff=Backoff(0.01))
        assert await zk.exists("/") is not None
        assert answers == [[ONE]]


async def test_error_contains_unknown_name(resolver: Any) -> None:
    def resolve(host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "name or service not known")

    resolver(resolve)

    with pytest.raises(ConnectionLossError, match=r"zk\.example:2181: name or service not known"):
        await Client("zk.example", 0.2).start()


# --- TLS ---


async def test_server_certificate_is_checked_against_host_name(resolver: Any) -> None:
    resolver(lambda host: [ONE])
    async with Server(tls=True) as server:
        port = server.hosts.rpartition(":")[2]
        async with Client(f"localhost.:{port}", tls=client_context(server.tls_ca)) as zk:
            assert zk.state is State.CONNECTED
        with pytest.raises(ConnectionLossError, match="certificate"):
            await Client(f"zk.example:{port}", 1.0, tls=client_context(server.tls_ca)).start()


# --- read-only servers ---


async def test_client_changes_to_writable_server_that_resolves_late(resolver: Any) -> None:
    async with Server(host=ONE) as reading, Server(host=TWO, port=reading.port) as writing:
        reading.set_read_only(True)
        found = threading.Event()

        def resolve(host: str) -> list[str]:
            if host == "rw.example":
                found.wait(DEADLINE_S)
            return [ONE if host == "ro.example" else TWO]

        resolver(resolve)
        hosts = f"ro.example:{reading.port},rw.example:{reading.port}"
        async with Client(hosts, read_only=True) as zk, asyncio.timeout(DEADLINE_S):
            assert zk.state is State.READ_ONLY
            found.set()
            await zk.wait_for(State.CONNECTED)

            assert list(writing.sessions()) == [zk.session_id]


async def test_first_round_waits_for_valid_name_despite_unknown_name(resolver: Any) -> None:
    unknown = threading.Event()

    def resolve(host: str) -> list[str]:
        if host == "unknown.example":
            unknown.set()
            raise socket.gaierror(socket.EAI_NONAME, "name or service not known")
        unknown.wait(DEADLINE_S)
        return [ONE]

    resolver(resolve)
    async with Server() as server:
        zk = Client(f"unknown.example,zk.example:{server.port}")
        await zk.start(wait=False)
        assert await zk.first_round() == ""
        await zk.aclose()


async def test_lookups_do_not_use_threads_of_loop(resolver: Any, silent_resolver: Resolve) -> None:
    resolver(silent_resolver)
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            client = Client(f"zk-{number}.example", operation_timeout=0.05)
            await client.start(wait=False)
            group.create_task(client.aclose())

    assert await asyncio.to_thread(lambda: "free") == "free"


def test_blocking_client_start_respects_timeout(resolver: Any, silent_resolver: Resolve) -> None:
    resolver(silent_resolver)
    began = time.monotonic()

    with pytest.raises(ConnectionLossError, match="was not resolved"), blocking.Client("zk.example", timeout=0.2):
        pass

    assert time.monotonic() - began < PROMPT_S


AFTER_MAIN_PROGRAM: Final = """
import sys, threading, time
from zoolet.client import blocking

def work():
    threading.main_thread().join()
    with blocking.Client(sys.argv[1]) as zk:
        print(zk.children("/"))

threading.Thread(target=work).start()
"""


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 2), reason="this Python starts no threads then: gh-113964")
def test_name_is_resolved_after_end_of_main_thread(zoolet: Server) -> None:
    hosts = zoolet.hosts.replace("127.0.0.1", "localhost")
    done = subprocess.run(
        [sys.executable, "-c", AFTER_MAIN_PROGRAM, hosts],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("['zookeeper']\n", "")
