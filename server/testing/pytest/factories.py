"""The types of the fixtures that are functions, to annotate the parameters of tests with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

from zoolet.server.testing.signatures import ClockName, CompatName

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from zoolet.client import Client
    from zoolet.server.testing.server import Server


class ServerFactory(Protocol):
    """The fixture ``zoolet_factory``: it starts a server."""

    def __call__(
        self,
        host: str = ...,
        port: int = ...,
        *,
        clock: ClockName = ...,
        seed: int | None = ...,
        data_dir: str | PathLike[str] | None = ...,
        begin_from: str | PathLike[str] | None = ...,
        tls: bool = ...,
        sasl_users: Mapping[str, str] | None = ...,
        config: Any = ...,
        compat: CompatName | None = ...,
        initial_zxid: int | None = ...,
    ) -> Server:
        """Start a server; the arguments are those of ``Server``."""
        ...


class KazooFactory(Protocol):
    """The fixture ``zoolet_kazoo_factory``: it returns a connected KazooClient."""

    def __call__(self, hosts: str | None = None, **options: Any) -> KazooClient:
        """Connect to *hosts*, by default to ``zoolet``; the options are those of ``KazooClient``."""
        ...


ClientFactory = Callable[..., "Awaitable[Client]"]
"""The fixture ``zoolet_client_factory``: it connects a ``Client``, to ``zoolet`` unless its first argument says where
to; the other arguments are those of ``Client``.
"""
