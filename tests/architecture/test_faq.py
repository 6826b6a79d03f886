"""docs/faq.md: each heading is a message that zoolet, or kazoo with zoolet, actually produces."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.command import zoolet

from zoolet.client import Client, blocking
from zoolet.testing import Server, lose_reply

PAGE: Final = Path(__file__).parents[2] / "docs" / "faq.md"


def headings() -> list[str]:
    """Return the messages in the headings."""
    return re.findall(r"^### `(.*)`$", PAGE.read_text(), re.MULTILINE)


def contains_message(heading: str, text: str) -> bool:
    """Return whether a text contains a message, where ``…`` stands for any text."""
    return re.search(re.escape(heading).replace("…", ".+"), text) is not None


def error_text(function: Callable[[], object]) -> str:
    """Return the class and text of the error that a function raises."""
    with pytest.raises(BaseException) as caught:
        function()
    return f"{type(caught.value).__module__}.{type(caught.value).__name__}: {caught.value}"


async def get_root(hosts: str) -> None:
    """Read the root of a server."""
    async with Client(hosts, timeout=0.2) as zk:
        await zk.get("/")


async def lose_connection(server: Server) -> None:
    """Write while the client is paused, so no reply arrives in time."""
    async with Client(server.hosts, timeout=1.0) as zk:
        await zk.exists("/")
        server.pause(zk)
        try:
            await zk.with_operation_timeout(0.2).set("/", b"1")
        finally:
            server.resume("all")


async def read_after_expiry(server: Server) -> None:
    """Read in a session that expires."""
    async with Client(server.hosts) as zk:
        await zk.exists("/")
        server.pause(zk)
        call = zk.get("/")
        server.expire(zk)
        server.resume("all")
        await call


async def lose_lock(server: Server) -> None:
    """Delete the node of a lock while a client holds the lock."""
    async with Client(server.hosts) as zk, zk.lock("/lock"):
        [name] = await zk.children("/lock")
        server.delete(f"/lock/{name}")
        await asyncio.sleep(5)


async def lock_twice(server: Server) -> None:
    """Acquire a lock twice in one task."""
    async with Client(server.hosts) as zk, zk.lock("/twice"), zk.lock("/twice"):
        pass


def use_in_other_loop(server: Server) -> None:
    """Use a client in a second event loop."""

    async def connect() -> Client:
        zk: Client = Client(server.hosts)
        await zk.start()
        return zk

    loop = asyncio.new_event_loop()
    zk = loop.run_until_complete(connect())

    async def read() -> None:
        await zk.get("/")

    try:
        asyncio.run(read())
    finally:
        loop.run_until_complete(zk.aclose())
        loop.close()


async def use_in_other_thread(server: Server) -> None:
    """Use a client outside the thread of its event loop."""
    async with Client(server.hosts) as zk:
        await asyncio.to_thread(zk.get, "/")


def use_after_fork(server: Server) -> str:
    """Return the error of a call in a forked process."""
    with blocking.Client(server.hosts) as zk:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                zk.get("/")
            except BaseException as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        text = os.read(reader, 1000).decode()
        os.close(reader)
        os.close(writer)
        return text


def close_warnings(server: Server) -> str:
    """Return the warnings about a client that is dropped, and about one that is not closed."""
    clients = []

    async def connect() -> None:
        await Client(server.hosts).start()
        clients.append(Client(server.hosts))
        await clients[0].start()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(connect())
        gc.collect()
    server.expire("all")
    return "\n".join(str(one.message) for one in caught)


def lose_reply_to_kazoo(server: Server) -> None:
    """Make a request with kazoo whose reply is lost with the connection."""
    zk = KazooClient(server.hosts)
    zk.start()
    try:
        with server.fault(lose_reply(), "getData", "/"):
            zk.get("/")
    finally:
        zk.stop()
        zk.close()


async def block_the_loop() -> None:
    """Start kazoo in the event loop of its server, which blocks the server."""
    async with Server() as server:
        zk = KazooClient(server.hosts, timeout=0.5)
        try:
            zk.start(timeout=0.2)
        finally:
            zk.close()


def start_invalid_daemon(*arguments: Any) -> str:
    """Return the stderr of a daemon that cannot start."""
    return zoolet("serve", *arguments).stderr


QUIET: Final = ("-p", "no:hypothesispytest", "-o", "asyncio_default_fixture_loop_scope=function")


@pytest.mark.slow
def test_each_heading_is_a_message(pytester: pytest.Pytester, tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path / "data")) as server:
        texts = [
            error_text(lambda: asyncio.run(get_root("127.0.0.1:1"))),
            error_text(lambda: asyncio.run(lose_connection(server))),
            error_text(lambda: asyncio.run(read_after_expiry(server))),
            error_text(lambda: use_in_other_loop(server)),
            error_text(lambda: asyncio.run(use_in_other_thread(server))),
            use_after_fork(server),
            error_text(lambda: Client(server.hosts).get_children("/")),  # type: ignore[attr-defined]
            close_warnings(server),
            error_text(lambda: asyncio.run(lose_lock(server))),
            error_text(lambda: asyncio.run(lock_twice(server))),
            error_text(lambda: lose_reply_to_kazoo(server)),
            error_text(lambda: asyncio.run(block_the_loop())),
            error_text(lambda: server.wait_for_node("/missing", timeout=0.1)),
            start_invalid_daemon("--port", server.port),
            start_invalid_daemon("--port", 0, "--data-dir", tmp_path / "data"),
        ]
    pytester.makepyfile(
        """
        from zoolet.client.blocking import Client

        def test_leak(zoolet):
            global zk
            zk = Client(zoolet.hosts)
            zk.start()

        def test_end():
            zk.close()
        """
    )
    texts.append(pytester.runpytest_inprocess(*QUIET).stdout.str())

    assert [one for one in headings() if not any(contains_message(one, text) for text in texts)] == [], "\n".join(texts)
    assert len(headings()) == 17
