"""Look-ups of host names, in daemon threads: a resolver that does not answer delays nothing else, not even the exit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Final

from ..wire.hosts import Address, Endpoint

OTHERS_TIMEOUT: Final = 0.2
"""Seconds that a round of connection attempts waits for the other host names after it knows the addresses of one."""


class Lookups:
    """The IP addresses of a client's servers. Each name is looked up again for each round, but never twice at a time.

    Args:
        addresses: The servers of the connect string.
        loop: The client's event loop.

    Attributes:
        failures: Reasons why names have no known address, by address.
    """

    def __init__(self, addresses: tuple[Address, ...], loop: asyncio.AbstractEventLoop) -> None:
        self._addresses = addresses
        self._loop = loop
        self._known: dict[Address, list[str]] = {
            address: ["" if address.path else address.host] for address in addresses if not address.is_name
        }
        self._pending: dict[Address, asyncio.Future[list[str]]] = {}
        self.failures: dict[Address, Exception] = {}

    def known(self) -> list[Endpoint]:
        """Return the servers whose IP addresses are known from the latest look-ups that succeeded."""
        return [Endpoint(address, ip) for address in self._addresses for ip in self._known.get(address, ())]

    async def refresh(self, seconds: float) -> list[Endpoint]:
        """Look up all names, and return the servers. A name that is not answered in time keeps its former addresses.

        Args:
            seconds: Time limit until a server is known. From then on, names have :data:`OTHERS_TIMEOUT` seconds.
        """
        names = [address for address in self._addresses if address.is_name]
        if not names:
            return self.known()
        self.failures = {}
        pending = {self._look_up(address) for address in names}
        if not self._known:
            _, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if pending and self._known:
            await asyncio.wait(pending, timeout=min(OTHERS_TIMEOUT, seconds))
        for address in names:
            if address not in self._known and address not in self.failures:
                self.failures[address] = TimeoutError(f"the host name was not resolved within {seconds:.3f} s")
        return self.known()

    def _look_up(self, address: Address) -> asyncio.Future[list[str]]:
        found = self._pending.get(address)
        if found is None:
            found = self._pending[address] = self._loop.create_future()
            if getattr(self._loop, "resolves_names", False):  # a simulation has no threads
                self._finish(address, [address.host], None)
            else:
                self._start_thread(address)
        return found

    def _start_thread(self, address: Address) -> None:
        def resolve() -> None:
            ips: list[str] = []
            error: Exception | None = None
            try:
                answers = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                ips = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
            except (OSError, UnicodeError) as failure:  # the name is unknown, or cannot be encoded
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._finish, address, ips, error)

        try:
            # Not the loop's own threads: a resolver that hangs would use them up, and delay the end of the loop.
            threading.Thread(target=resolve, name="zoolet-lookup", daemon=True).start()
        except RuntimeError as refused:  # for example because the interpreter is ending
            self._finish(address, [], refused)

    def _finish(self, address: Address, ips: list[str], error: Exception | None) -> None:
        found = self._pending.pop(address)
        if ips:
            self._known[address] = ips
        else:
            self.failures[address] = error or OSError("the host name has no address")
        if not found.done():
            found.set_result(ips)
