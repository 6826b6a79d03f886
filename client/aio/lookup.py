"""Look-ups of host names, in daemon threads: a resolver that does not answer delays nothing else, not even the exit."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import socket
from typing import Final

from ..wire.hosts import Address, ServerAddress

OTHER_NAMES_TIMEOUT: Final = 0.2
"""Seconds to wait for the remaining host names once the addresses of one host are known."""


class Lookups:
    """The IP addresses of a client's servers. Each name is looked up again for each round, but never twice at a time.

    Args:
        addresses: The servers of the connect string.
        loop: The client's event loop.

    Attributes:
        failures: Reasons why the latest look-ups failed, by address.
    """

    def __init__(self, addresses: tuple[Address, ...], loop: asyncio.AbstractEventLoop) -> None:
        self._addresses = addresses
        self._loop = loop
        self._known_ips: dict[Address, list[str]] = {
            address: ["" if address.path else address.host] for address in addresses if not address.is_name
        }
        self._pending: dict[Address, asyncio.Future[None]] = {}
        self.failures: dict[Address, Exception] = {}

    async def refresh(self, seconds: float) -> list[ServerAddress]:
        """Look up all names, and return the servers. A name that is not resolved keeps its previous addresses.

        Args:
            seconds: Time limit until a server is known. From then on, names have :data:`OTHER_NAMES_TIMEOUT` seconds.
        """
        names = [address for address in self._addresses if address.is_name]
        self.failures = {}
        pending = {self._look_up(address) for address in names}
        deadline = self._loop.time() + seconds
        while pending and not self._known_ips and (left := deadline - self._loop.time()) > 0:
            _, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if pending and self._known_ips:
            await asyncio.wait(pending, timeout=min(OTHER_NAMES_TIMEOUT, seconds))
        unanswered = TimeoutError(f"the host name was not resolved within {seconds:.3f} s")
        self.failures |= {
            name: unanswered for name in names if name not in self._known_ips.keys() | self.failures.keys()
        }
        return [ServerAddress(address, ip) for address in self._addresses for ip in self._known_ips.get(address, ())]

    def _look_up(self, address: Address) -> asyncio.Future[None]:
        if (pending := self._pending.get(address)) is not None:
            return pending
        done = self._pending[address] = self._loop.create_future()

        def resolve() -> None:
            ips: list[str] = []
            error: Exception = OSError("the host name has no address")
            try:
                answers = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                ips = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
            except Exception as failure:  # the name is unknown or invalid, or a tool replaces getaddrinfo()
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop may have been closed since
                self._loop.call_soon_threadsafe(self._finish, address, ips, error)

        if getattr(self._loop, "resolves_names", False):  # a simulation has no threads, and resolves names
            self._finish(address, [address.host], None)
            return done
        try:
            # The loop's own threads are not used, because a hanging resolver would occupy them and delay the end of the
            # loop. Nor is a Thread, because its start() waits for a lock whose holder may be waiting for this loop.
            _thread.start_new_thread(resolve, ())
        except RuntimeError as refused:  # for example because the interpreter is exiting
            self._finish(address, [], refused)
        return done

    def _finish(self, address: Address, ips: list[str], error: Exception | None) -> None:
        if ips:
            self._known_ips[address] = ips
        elif error is not None:
            self.failures[address] = error
        if not (done := self._pending.pop(address)).done():
            done.set_result(None)
