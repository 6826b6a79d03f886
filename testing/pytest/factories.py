"""Types of the factory fixtures, for annotations of test parameters, and fixtures of a project's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ...client import Client
from ..server import Server
from ..signatures import ClockName, CompatName

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class ServerFactory(Protocol):
    """The fixture ``zoolet_factory``, which starts a server."""

    def __call__(
        self,
        host: str = ...,
        port: int = ...,
        *,
        clock: ClockName = ...,
        seed: int | None = ...,
        data_dir: str | PathLike[str] | None = ...,
        initial_data: str | PathLike[str] | None = ...,
        tls: bool = ...,
        sasl_users: Mapping[str, str] | None = ...,
        config: Any = ...,
        compat: CompatName | None = ...,
        initial_zxid: int | None = ...,
    ) -> Server:
        """Start a server. The arguments are the same as for ``Server``."""
        ...


class KazooFactory(Protocol):
    """The fixture ``zoolet_kazoo_factory``, which returns a connected KazooClient."""

    def __call__(self, hosts: str | None = None, **options: Any) -> KazooClient:
        """Connect to *hosts*, by default to ``zoolet``. The options are the same as for ``KazooClient``."""
        ...


ClientFactory = Callable[..., Awaitable[Client]]
"""The fixture ``zoolet_client_factory``, which connects a ``Client``. The arguments are the same as for ``Client``, but
``hosts`` is optional and defaults to ``zoolet``.
"""


def zoolet_fixture(
    scope: Literal["session", "package", "module", "class", "function"] = "function",
    *,
    clock: ClockName | None = None,
    seed: int | None = None,
    data_dir: str | PathLike[str] | None = None,
    initial_data: str | PathLike[str] | None = None,
    tls: bool = False,
    sasl_users: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    compat: CompatName | None = None,
) -> Any:
    """Return a fixture for an additional ZooKeeper server, apart from ``zoolet``, with its own scope::

        shared_zoolet = zoolet_fixture(scope="session", config={"maxClientCnxns": 5})

    Call it in a ``conftest.py`` or a test module, and use the fixture as ``def test_it(shared_zoolet: Server)``. The
    arguments are the same as for ``Server``. Their defaults come from the ini file and the command line, but not from
    the marker, which is for ``zoolet``.
    """
    from .fixtures import additional_server  # needs pytest, which the types do not

    given = {"clock": clock, "seed": seed, "data_dir": data_dir, "initial_data": initial_data, "compat": compat}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"tls": tls, "sasl_users": sasl_users}
    return additional_server(scope, data_dir, options, config)
