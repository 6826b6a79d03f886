"""Types of the factory fixtures, for annotations of test parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

from ..signatures import ClockName, CompatName

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ...client import Client
    from ..server import Server


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


ClientFactory = Callable[..., "Awaitable[Client]"]
"""The fixture ``zoolet_client_factory``, which connects a ``Client``. The arguments are the same as for ``Client``, but
``hosts`` is optional and defaults to ``zoolet``.
"""
