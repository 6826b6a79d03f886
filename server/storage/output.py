"""The interface of log and connections: output that may have to wait, and the log that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Output(Protocol):
    """The output of one connection, which may have to wait until the transactions that it shows are logged."""

    @property
    def session_id(self) -> int:
        """The session of the connection; 0 if it has none."""
        ...

    def pop_output(self) -> tuple[bytes, bool]:
        """Return the bytes to send now, and whether the connection is to be closed behind them."""
        ...

    def send_output(self, data: bytes, closing: bool, last: bool) -> None:
        """Send bytes that have waited; *last* says that no others wait. Nothing happens if the connection is gone."""
        ...

    def pause(self) -> None:
        """Receive nothing more until :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Receive again; called only after :meth:`pause`."""
        ...


class TransactionLog(Protocol):
    """Where transactions are logged before the output that shows them is sent: a ``Store``."""

    def hold(self, output: Output) -> bool:
        """Return whether the output of a connection has to wait; it is sent later then."""
        ...

    def forget(self, output: Output) -> None:
        """Forget a connection that is gone."""
        ...

    def commit_soon(self) -> None:
        """Log what was applied."""
        ...

    def paused(self) -> Sequence[Output]:
        """Return the connections from which nothing is received, because so much of their output waits."""
        ...

    def snapshot_soon(self) -> object:
        """Begin to write a snapshot."""
        ...

    async def snapshot_written(self) -> None:
        """Wait until no snapshot is being written."""
        ...

    async def close(self) -> bool:
        """Log what remains, and close the files; return whether all could be logged."""
        ...
