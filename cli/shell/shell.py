"""The state of a shell for its commands: connection, watches, paths and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...client.client import Client
from ...client.serializers import Serializer
from ...client.wire.backoff import Backoff
from ...client.wire.diagnosis import OLD_DATA_WARNING
from ...client.wire.states import Event, State
from ...protocol import records as r
from ...protocol.acl import OPEN_ACL_UNSAFE, AclList
from ...protocol.codec import Record
from ...protocol.enums import MAX_FRAME, CreateMode, EventType
from ...protocol.errors import AuthFailedError, ClosedError, ErrorCode, ZooKeeperError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ..addresses import cannot_connect_message
from ..options import is_read_only
from .errors import ShellCommandError, error_text, validate_path
from .output import ShellOutput
from .texts import event_text, printable
from .watches import ShellWatches

if TYPE_CHECKING:
    import ssl

BACKOFF: Final = Backoff(first=0.05, longest=0.5)
"""Delays between connection attempts, which are short because a user is waiting."""
FIRST_CONNECTION_TIMEOUT_S: Final = 1.0
"""Maximum number of seconds that an interactive shell waits for its first connection."""
RECONNECT_TIMEOUT_S: Final = 5.0
"""Maximum number of seconds that a command waits for a lost connection."""
EVENT_STATES: Final = {
    State.CONNECTED: "SyncConnected",
    State.READ_ONLY: "ConnectedReadOnly",
    State.SUSPENDED: "Disconnected",
    State.LOST: "Expired",
    State.CLOSED: "Closed",
}
"""Names of the connection states in events."""
PROMPT_STATES: Final = {
    State.CONNECTED: "CONNECTED",
    State.READ_ONLY: "CONNECTEDREADONLY",
    State.CLOSED: "CLOSED",
}
"""Names of the connection states in the prompt; the other states are CONNECTING."""


class ConnectionSettings(NamedTuple):
    """Settings of the shell's connection.

    Args:
        hosts: Connect string, as it was given.
        timeout: Session timeout in seconds.
        auth: Credentials of the session.
        tls: TLS context; None for plain connections.
        waits_first: Whether a single command waits for a connection for up to the session timeout. Otherwise it waits
            until all servers have been tried once.
        max_request: Maximum size of a request in bytes.
    """

    hosts: str
    timeout: float = 30.0
    auth: tuple[tuple[str, bytes], ...] = ()
    tls: ssl.SSLContext | None = None
    waits_first: bool = False
    max_request: int = MAX_FRAME


class _NullableBytes(Serializer):
    """A serializer that preserves null data: it reads bytes, or None for null."""

    def read(self, path: str | None, data: bytes | None) -> Any:
        return data


NULLABLE_BYTES: Final = _NullableBytes("bytes or null", bytes, bytes)


class Shell:
    """The state of a shell: connection, watches, current node, history and exit code.

    Args:
        settings: Settings of the connection.
        out: Output of the shell.

    Attributes:
        directory: Node that relative paths start from; empty before the first ``cd``.
        history: Lines that were executed.
        exit_code: Exit code of the last command.
        shows_watches: Whether events of watches are shown.
        interactive: Whether the shell runs at a terminal.
        ended: Whether ``quit`` was executed.
        terminal_is_lent: Whether an editor is using the terminal and receives Ctrl-C.
        pending: Line that ``redo`` has selected to execute next; empty if there is no such line.
        on_prompt_changed: Function that is called when the prompt changes.
    """

    def __init__(self, settings: ConnectionSettings, out: ShellOutput) -> None:
        self.settings = settings
        self.out = out
        self.hosts = settings.hosts
        self.directory = ""
        self.history: list[str] = []
        self.exit_code = 0
        self.shows_watches = True
        self.interactive = False
        self.ended = False
        self.pending = ""
        self.terminal_is_lent = False
        self.on_prompt_changed: Callable[[], None] = lambda: None
        self._client: Client | None = None
        self._watches: ShellWatches | None = None
        self._listener: _Listener | None = None
        self._had_state = self._is_settled = self._is_read_only_reported = False
        self._show_later: Callable[[str, Any], None] | None = None

    # --- the connection ---

    @property
    def client(self) -> Client:
        """The client, which may still be connecting.

        Raises:
            ShellCommandError: The client is closed.
        """
        if self._client is None or self._client.terminal_error is not None:
            raise ShellCommandError("Not connected")
        return self._client

    @property
    def watches(self) -> ShellWatches:
        """The watches of the session."""
        assert self._watches is not None
        return self._watches

    def report_if_closed(self) -> None:
        """Print "Not connected" if the client is closed, as zkCli does after commands that need no connection."""
        if self._client is None or self._client.terminal_error is not None:
            self.out.show({"connected": False}, ["Not connected"])

    async def connect(self, hosts: str | None = None) -> None:
        """Start a client, which connects in the background. The previous client must be closed.

        Raises:
            ShellCommandError: The connect string is invalid.
        """
        settings = self.settings
        try:
            client = Client(
                hosts or self.hosts,
                settings.timeout,
                operation_timeout=settings.timeout if settings.waits_first else RECONNECT_TIMEOUT_S,
                serializer=NULLABLE_BYTES,
                read_only=True,
                auth=settings.auth,
                tls=settings.tls,
                max_request=settings.max_request,
                backoff=BACKOFF,
            )
        except ValueError as error:
            raise ShellCommandError(str(error)) from None
        self.hosts = hosts or self.hosts
        self._had_state = False
        self._client = client
        self._watches = ShellWatches(client, self._show_event)
        self._listener = _Listener(self, client)
        client._core.add_listener(self._listener)  # noqa: SLF001 - listeners are called immediately, in event order
        await client.start(wait=False)

    async def report_connection(self) -> None:
        """Wait briefly for the first connection. If all servers fail, report the reason."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CONNECTION_TIMEOUT_S):
                if reason := await self.client.first_round():
                    self.out.error(f"{cannot_connect_message(reason)}; retrying")
                await self.settle()

    async def settle(self) -> None:
        """Wait briefly for a server that accepts writes, if several servers are given. Report a read-only server."""
        if "," in self.hosts:
            with suppress(TimeoutError, ShellCommandError):
                async with asyncio.timeout(FIRST_CONNECTION_TIMEOUT_S):
                    await self.client.first_round()
                await is_read_only(self.client, self.hosts)
        self._is_settled = True
        self._report_read_only()

    def _report_read_only(self) -> None:
        """Report a read-only server on stderr, once, unless the shell is interactive: its prompt shows the state."""
        is_read_only = self._client is not None and self._client.state is State.READ_ONLY
        if is_read_only and self._is_settled and not self._is_read_only_reported and not self.interactive:
            self.out.error(f"{self.hosts}: {OLD_DATA_WARNING}")
            self._is_read_only_reported = True

    async def close(self) -> None:
        """End the session and the connection."""
        if self._client is not None:
            await self._client.aclose()

    def show_state(self, client: Client, state: State) -> None:
        """Redraw the prompt, and print the new state. Scripts skip the expected first and last states."""
        if client is not self._client:
            return
        self.on_prompt_changed()
        failed = state is State.CLOSED and isinstance(client.terminal_error, AuthFailedError)
        first, self._had_state = not self._had_state, True
        expected = not self.interactive and (first or (state is State.CLOSED and not failed))
        self._is_read_only_reported = self._is_read_only_reported and state is not State.CONNECTED
        self._report_read_only()
        name = "AuthFailed" if failed else EVENT_STATES.get(state)
        if name is not None and self.shows_watches and not expected:
            self._show(Event(EventType.NONE, ""), name)

    def _show_event(self, event: Event) -> None:
        if self.shows_watches:
            assert self._client is not None
            self._show(event, EVENT_STATES.get(self._client.state, "SyncConnected"))

    def _show(self, event: Event, state: str) -> None:
        value = {
            "event": event.type.name.lower(),
            "state": state,
            "path": event.path or None,
            "zxid": None if event.zxid is None else hexadecimal(event.zxid),
        }
        show = self._show_later or self.out.event
        show(event_text(event.type, event.path, state, event.zxid), value)

    @contextmanager
    def lend_terminal(self) -> Iterator[None]:
        """Lend the terminal, including Ctrl-C, to another program during the block. Print events after the block."""
        events: list[tuple[str, Any]] = []
        self.terminal_is_lent = True
        self._show_later = lambda text, value: events.append((text, value))
        try:
            yield
        finally:
            self.terminal_is_lent = False
            self._show_later = None
            for text, value in events:
                self.out.event(text, value)

    @property
    def prompt(self) -> str:
        """The prompt: hosts, state of the connection, current node and number of the line."""
        state = PROMPT_STATES.get(self._client.state, "CONNECTING") if self._client is not None else "CLOSED"
        if self._client is not None and isinstance(self._client.terminal_error, AuthFailedError):
            state = "AUTH_FAILED"
        place = f" {self.directory}" if self.directory else ""
        return printable(f"[zk: {self.hosts}({state}){place} {len(self.history)}] ")

    # --- paths and requests ---

    def path(self, text: str) -> str:
        """Return the absolute path for a word, which may be relative to the current node.

        Raises:
            ShellCommandError: The word is not a valid path.
        """
        if self.directory and text and not text.startswith("/"):
            parts = [part for part in self.directory.split("/") if part]
            for part in text.split("/"):
                if part == "..":
                    if not parts:
                        raise ShellCommandError(f"{text} leads above /")
                    del parts[-1]
                elif part not in ("", "."):
                    parts.append(part)
            text = "/" + "/".join(parts)
        return validate_path(text)

    def path_or_word(self, text: str) -> str:
        """Return the absolute path for a word. Before the first ``cd``, return the word unchecked."""
        return self.path(text) if self.directory else text

    def refuse_chroot(self, subject: str) -> None:
        """Check that the connection has no chroot, which would hide the server's own nodes.

        Args:
            subject: Start of the error message, such as "quotas are".

        Raises:
            ShellCommandError: The connection has a chroot.
        """
        if self.client.add_chroot("/") != "/":
            chroot = self.client.add_chroot("/")
            raise ShellCommandError(
                f"{subject} stored below /zookeeper; connect without the chroot {chroot}, which hides it"
            )

    async def request(self, op: OpCode, request: Record, path: str | None) -> Any:
        """Make a request, and return its reply. An error contains *path*, without the chroot.

        Raises:
            ZooKeeperError: The server rejects the request, or the connection was lost.
        """
        try:
            return await self.client.call(op, request)
        except ZooKeeperError as error:
            error.path = path
            raise

    async def create(self, path: str, data: bytes | None, acl: AclList = OPEN_ACL_UNSAFE) -> None:
        """Create a persistent node. Unlike the client's ``create()``, this supports null data."""
        request = r.CreateRequest(self.client.add_chroot(path), data, acl, CreateMode.PERSISTENT)
        await self.request(OpCode.CREATE, request, path)

    def error_message(self, error: ZooKeeperError) -> str:
        """Return the message for an error, with the reason of a lost connection."""
        if isinstance(error, ClosedError):
            return "Not connected"
        if error.code is ErrorCode.CONNECTION_LOSS and self._client is not None and self._client.last_reason:
            reason = self._client.last_reason
            error.detail = reason if self._client.session_id else cannot_connect_message(reason)
        return error_text(error)


class _Listener:
    """A listener that reports the states of one client to the shell."""

    def __init__(self, shell: Shell, client: Client) -> None:
        self._shell = shell
        self._client = client

    def on_state(self, state: State) -> None:
        self._shell.show_state(self._client, state)
