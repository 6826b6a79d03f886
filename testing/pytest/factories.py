"""Types for annotations of the factory fixtures, and :func:`zoolet_fixture`, which returns additional fixtures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack

from ...client import Client
from ..server import Server, ServerOptions

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class ServerFactory(Protocol):
    """Type of the fixture ``zoolet_factory``, which starts servers."""

    def __call__(self, host: str = ..., port: int = ..., **options: Unpack[ServerOptions]) -> Server:
        """Start a server. The arguments are the same as for ``Server``."""
        ...


class KazooFactory(Protocol):
    """Type of the fixture ``zoolet_kazoo_factory``, which returns connected KazooClients."""

    def __call__(self, hosts: str | None = None, **options: Any) -> KazooClient:
        """Connect to *hosts*, by default to ``zoolet``. The options are the same as for ``KazooClient``."""
        ...


ClientFactory = Callable[..., Awaitable[Client]]
"""Type of the fixture ``zoolet_client_factory``, which returns connected clients. The arguments are the same as for
``Client``, but ``hosts`` is optional and defaults to ``zoolet``.
"""


def zoolet_fixture(
    scope: Literal["session", "package", "module", "class", "function"] = "function",
    **options: Unpack[ServerOptions],
) -> Any:
    """Return a fixture for an additional ZooKeeper server, apart from ``zoolet``, with its own scope::

        shared_zoolet = zoolet_fixture(scope="session", config={"maxClientCnxns": 5})

    Call it in a ``conftest.py`` or a test module, and use the fixture as ``def test_it(shared_zoolet: Server)``. The
    arguments are the same as for ``Server``. Their defaults come from the ini file and the command line, but not from
    the marker, which is for ``zoolet``.

    Raises:
        TypeError: An option is not a keyword argument of ``Server``, or is ``host`` or ``port``.
    """
    from .fixtures import additional_server  # not at the top, because the types of this module must not need pytest

    if unknown := options.keys() - ServerOptions.__annotations__.keys():
        raise TypeError(f"zoolet_fixture: unknown argument {min(unknown)!r}; expected keyword arguments of Server")
    return additional_server(scope, {name: value for name, value in options.items() if value is not None})
