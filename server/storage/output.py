"""The interface between the log and the connections: output that may have to wait, and the log that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ConnectionOutput(Protocol):
    """The output of one connection. It may have to wait until the transactions that it shows are logged."""

    @property
    def session_id(self) -> int:
        """The id of the connection's session; 0 if it has none."""
        ...

    def pop_output(self) -> tuple[bytes, bool]:
        """Return the bytes to send now, and whether to close the connection after them."""
        ...

    def send_output(self, data: bytes, closing: bool, last: bool) -> None:
        """Send bytes that have waited. Do nothing on a closed connection.

        Args:
            data: The bytes.
            closing: Whether to close the connection after the bytes.
            last: Whether no more output of the connection is waiting.
        """
        ...

    def pause(self) -> None:
        """Stop reading requests until :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Start reading requests again, after :meth:`pause`."""
        ...


class TransactionLog(Protocol):
    """The log of a server, such as a ``Store``. It logs transactions before the output that shows them is sent."""

    def hold(self, output: ConnectionOutput) -> bool:
        """Return whether the output of a connection has to wait. If so, the log sends it later."""
        ...

    def forget(self, output: ConnectionOutput) -> None:
        """Forget a connection that was closed, and its waiting output."""
        ...

    def commit_soon(self) -> None:
        """Start a group commit of the applied transactions, if none is running."""
        ...

    def paused(self) -> Sequence[ConnectionOutput]:
        """Return the connections that the server is not reading, because too much of their output waits for the log."""
        ...

    def snapshot_soon(self) -> object:
        """Start writing a snapshot."""
        ...

    async def snapshot_written(self) -> None:
        """Wait until no snapshot is being written."""
        ...

    async def close(self) -> bool:
        """Log the remaining transactions, and close the files. Return whether everything was logged."""
        ...
