"""``0.0.0.0`` and ``::`` mean all addresses of both families, and a peer that uses IPv4 has an IPv4 address."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest
from support.engine import assemble_daemon
from support.tls_clients import CERTIFICATE_SETTINGS
from support.waiting import until

from zoolet.client.blocking import Client
from zoolet.server.admin.http import HttpRequest, Response, Route
from zoolet.server.config import ServerConfig
from zoolet.server.net import listening, tls
from zoolet.server.net.http import HttpServer
from zoolet.testing import Server

LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
ALL: Final = pytest.mark.parametrize("host", [None, "0.0.0.0", "::", "0:0:0:0:0:0:0:0"])
needs_ipv6: Final = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")


def accepts_connections(address: str, port: int) -> bool:
    """Return whether a socket listens on an address."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        return client.connect_ex((address, port)) == 0


async def reachable_families(port: int) -> dict[int, bool]:
    """Return for each family whether the loopback address accepts connections."""
    return {family: await asyncio.to_thread(accepts_connections, address, port) for family, address in LOOPBACK.items()}


@needs_ipv6
@ALL
@pytest.mark.parametrize("without_waiting", [True, False])
async def test_peers_of_both_families_have_their_addresses(host: str | None, without_waiting: bool) -> None:
    daemon = assemble_daemon(ServerConfig())
    port = await daemon.start(host, 0, without_waiting=without_waiting)
    streams = [await asyncio.open_connection(address, port) for address in LOOPBACK.values()]
    await until(lambda: len(daemon.connections.open) == 2)
    hosts = {client.host for client in daemon.connections.open}
    for _, writer in streams:
        writer.close()
    await daemon.stop(gracefully=False)

    assert hosts == set(LOOPBACK.values())


@needs_ipv6
@ALL
async def test_wildcard_tls_host_listens_on_both_families(host: str | None) -> None:
    daemon = assemble_daemon(ServerConfig())
    port = await daemon.start_secure(host, 0, tls.context(CERTIFICATE_SETTINGS))
    found = await reachable_families(port)
    await daemon.stop(gracefully=False)

    assert found == {4: True, 6: True}


@needs_ipv6
@ALL
async def test_wildcard_http_host_listens_on_both_families(host: str | None) -> None:
    async def answer(request: HttpRequest) -> Response:
        return Response(request.host.encode())

    server = HttpServer(lambda request: (Route((), "/*", answer), request))
    port = await server.start(host, 0)
    bodies = []
    for address in LOOPBACK.values():
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        bodies.append((await reader.read()).rpartition(b"\r\n")[2].decode())
        writer.close()
    await server.close()

    assert bodies == list(LOOPBACK.values())


@needs_ipv6
@pytest.mark.parametrize("family", [4, 6])
async def test_server_on_single_address_listens_on_its_family_only(family: int) -> None:
    daemon = assemble_daemon(ServerConfig())
    port = await daemon.start(LOOPBACK[family], 0)
    found = await reachable_families(port)
    await daemon.stop(gracefully=False)

    assert found == {4: family == 4, 6: family == 6}


@needs_ipv6
@pytest.mark.parametrize("hosts", ["0.0.0.0,::1", "::,127.0.0.1"])
async def test_server_listens_on_ip_family_of_each_listed_address(hosts: str) -> None:
    daemon = assemble_daemon(ServerConfig())
    port = await daemon.start(hosts, 0)
    found = await reachable_families(port)
    await daemon.stop(gracefully=False)

    assert found == {4: True, 6: True}


@needs_ipv6
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_both_ip_families_are_accepted_again_on_same_port(host: str) -> None:
    with Server(host) as server:
        port = server.port
        server.refuse_connections()
        refused = asyncio.run(reachable_families(port))
        server.accept_connections()
        accepted = asyncio.run(reachable_families(port))
        server.restart()
        restarted = asyncio.run(reachable_families(server.port))

    assert refused == {4: False, 6: False}
    assert accepted == restarted == {4: True, 6: True}


@needs_ipv6
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_hosts_of_wildcard_server_is_connectable(host: str) -> None:
    with Server(host) as server, Client(server.hosts) as zk:
        assert zk.create("/a", b"") == "/a"


@pytest.fixture(params=["no-support", "no-addresses"])
def without_ipv6(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without IPv6: the kernel does not support it, or the network has no address."""
    if request.param == "no-support":
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
        yield
        return
    create = socket.create_server

    def fail(address: Any, **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create(address, **options)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket, "create_server", fail)
    yield


def test_machine_without_ipv6_listens_on_ipv4(without_ipv6: None) -> None:
    with listening.listen_on_all(0, 1) as listener:
        assert listener.family == socket.AF_INET


def test_port_in_use_is_an_error_for_all_addresses() -> None:
    with listening.listen_on_all(0, 1) as taken, pytest.raises(OSError) as caught:
        listening.listen_on_all(taken.getsockname()[1], 1)

    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in (None, "0.0.0.0", "::", "0", "::0", "0:0:0:0:0:0:0:0")),
        *((host, False) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.0", "::,::")),
    ],
)
def test_zero_address_in_any_notation_means_all_addresses(host: str | None, expected: bool) -> None:
    assert listening.means_all(host) is expected


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::1", "::1"),
        ("192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0.1", "fe80::1%eth0.1"),
    ],
)
def test_ipv4_peer_has_ipv4_address(host: str, shown: str) -> None:
    assert listening.peer_host((host, 1)) == shown
