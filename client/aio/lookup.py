"""Look-ups of host names, in daemon threads: a resolver that does not answer delays nothing else, not even the exit."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import socket
from typing import Final

from ..wire.hosts import Address, ServerAddress

OTHERS_TIMEOUT: Final = 0.2
"""Seconds that a round of connection attempts waits for the other host names after it knows the addresses of one."""


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
        self._known: dict[Address, list[str]] = {
            address: ["" if address.path else address.host] for address in addresses if not address.is_name
        }
        self._pending: dict[Address, asyncio.Future[None]] = {}
        self.failures: dict[Address, Exception] = {}

    async def refresh(self, seconds: float) -> list[ServerAddress]:
        """Look up all names, and return the servers. A name that is not resolved keeps its former addresses.

        Args:
            seconds: Time limit until a server is known. From then on, names have :data:`OTHERS_TIMEOUT` seconds.
        """
        names = [address for address in self._addresses if address.is_name]
        self.failures = {}
        pending = {self._look_up(address) for address in names}
        deadline = self._loop.time() + seconds
        while pending and not self._known and (left := deadline - self._loop.time()) > 0:
            _, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if pending and self._known:
            await asyncio.wait(pending, timeout=min(OTHERS_TIMEOUT, seconds))
        unanswered = TimeoutError(f"the host name was not resolved within {seconds:.3f} s")
        self.failures |= {name: unanswered for name in names if name not in self._known.keys() | self.failures.keys()}
        return [ServerAddress(address, ip) for address in self._addresses for ip in self._known.get(address, ())]

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
            with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._finish, address, ips, error)

        if getattr(self._loop, "resolves_names", False):  # a simulation has no threads
            self._finish(address, [address.host], None)
            return done
        try:
            # Not the loop's own threads: a resolver that hangs would use them up, and delay the end of the loop. And
            # not a Thread: its start() waits for a lock that a thread may hold while it waits for this loop.
            _thread.start_new_thread(resolve, ())
        except RuntimeError as refused:  # for example because the interpreter is ending
            self._finish(address, [], refused)
        return done

    def _finish(self, address: Address, ips: list[str], error: Exception | None) -> None:
        if ips:
            self._known[address] = ips
        elif error is not None:
            self.failures[address] = error
        if not (done := self._pending.pop(address)).done():
            done.set_result(None)
