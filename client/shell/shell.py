"""The state of a shell, which commands use: the connection, the watches, paths and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zoolet.client.aio.client import Client
from zoolet.client.serializers import Serializer
from zoolet.client.shell.errors import CommandError, checked_path, text_of
from zoolet.client.shell.output import Output
from zoolet.client.shell.texts import event_text, printable
from zoolet.client.shell.watches import ShellWatches
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.states import Event, State
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import CreateMode, EventType
from zoolet.protocol.errors import AuthFailedError, ClosedError, ErrorCode, ZooKeeperError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OpCode

if TYPE_CHECKING:
    import ssl

BACKOFF: Final = Backoff(first=0.05, longest=0.5)
"""How soon servers are tried again; a person waits for them."""
FIRST: Final = 1.0
"""Seconds that a shell at a terminal waits for its first connection."""
WAITING: Final = 5.0
"""Seconds that a command waits for a connection that is lost."""
STATES: Final = {
    State.CONNECTED: "SyncConnected",
    State.READ_ONLY: "ConnectedReadOnly",
    State.SUSPENDED: "Disconnected",
    State.LOST: "Expired",
    State.CLOSED: "Closed",
}
"""How the states of a connection are called in events."""
PROMPTS: Final = {
    State.CONNECTED: "CONNECTED",
    State.READ_ONLY: "CONNECTEDREADONLY",
    State.CLOSED: "CLOSED",
}
"""How they are called in the prompt; all others are CONNECTING."""


class Settings(NamedTuple):
    """How the shell connects.

    Args:
        hosts: The servers, and the chroot, as they were given.
        timeout: The session timeout, in seconds.
        read_only: Whether a server that has lost its quorum will do.
        auth: Credentials to begin with.
        tls: For connections over TLS.
        waits_first: Whether one command alone waits for a connection as long as the session timeout, instead of until
            all servers were tried once.
    """

    hosts: str
    timeout: float = 30.0
    read_only: bool = False
    auth: tuple[tuple[str, bytes], ...] = ()
    tls: ssl.SSLContext | None = None
    waits_first: bool = False


class _Nullable(Serializer):
    """Bytes, and None for null, which is what a node without data holds."""

    __slots__ = ()

    def read(self, path: str | None, data: bytes | None) -> Any:
        return data


NULLABLE: Final = _Nullable("bytes or null", bytes, bytes)


class Shell:
    """A shell.

    Args:
        settings: How it connects.
        out: Where it writes.

    Attributes:
        directory: The node that relative paths begin at; empty before the first ``cd``.
        history: The lines that were executed.
        exit_code: That of the last command.
        shows_watches: Whether events of watches are shown.
        interactive: Whether a person types at a terminal.
        ended: Whether ``quit`` was typed.
        terminal_is_lent: Whether another program, an editor, has the terminal, and Ctrl-C is for it.
        pending: A line that is executed next, as redo wants it; or empty.
        on_prompt_changed: Called when the prompt has changed.
    """

    def __init__(self, settings: Settings, out: Output) -> None:
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
        self._had_state = False
        self._show_later: Callable[[str, Any], None] | None = None

    # --- the connection ---

    @property
    def client(self) -> Client:
        """The client; it may be connecting still.

        Raises:
            CommandError: It is closed.
        """
        if self._client is None or self._client.terminal_error is not None:
            raise CommandError("Not connected")
        return self._client

    @property
    def watches(self) -> ShellWatches:
        """The watches of its session."""
        assert self._watches is not None
        return self._watches

    def report_if_closed(self) -> None:
        """Report it if there is no connection, as ZooKeeper's own shell does behind what needs none."""
        if self._client is None or self._client.terminal_error is not None:
            self.out.show({"connected": False}, ["Not connected"])

    def connect(self, hosts: str | None = None) -> None:
        """Begin to connect; the client of before must be closed.

        Raises:
            CommandError: The connect string is not valid.
        """
        settings = self.settings
        try:
            client = Client(
                hosts or self.hosts,
                settings.timeout,
                operation_timeout=settings.timeout if settings.waits_first else WAITING,
                serializer=NULLABLE,
                read_only=settings.read_only,
                auth=settings.auth,
                tls=settings.tls,
                backoff=BACKOFF,
            )
        except ValueError as error:
            raise CommandError(str(error)) from None
        self.hosts = hosts or self.hosts
        self._had_state = False
        self._client = client
        self._watches = ShellWatches(client, self._show_event)
        self._listener = _Listener(self, client)
        client.add_listener(self._listener)
        client.begin()

    async def report_connection(self) -> None:
        """Wait a moment for the first connection, and report why there is none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST):
                if reason := await self.client.first_round():
                    self.out.error(f"{reason}; it is tried again")

    async def close(self) -> None:
        """End the session and the connection."""
        if self._client is not None:
            await self._client.aclose()

    def show_state(self, client: Client, state: State) -> None:
        """Show that the connection has changed; to a script only what is neither its beginning nor its end."""
        if client is not self._client:
            return
        self.on_prompt_changed()
        failed = state is State.CLOSED and isinstance(client.terminal_error, AuthFailedError)
        first, self._had_state = not self._had_state, True
        expected = not self.interactive and (first or (state is State.CLOSED and not failed))
        name = "AuthFailed" if failed else STATES.get(state)
        if name is not None and self.shows_watches and not expected:
            self._show(Event(EventType.NONE, ""), name)

    def _show_event(self, event: Event) -> None:
        if self.shows_watches:
            assert self._client is not None
            self._show(event, STATES.get(self._client.state, "SyncConnected"))

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
    def lent_terminal(self) -> Iterator[None]:
        """Leave the terminal, Ctrl-C too, to another program; events are shown afterwards."""
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
        """The prompt."""
        state = PROMPTS.get(self._client.state, "CONNECTING") if self._client is not None else "CLOSED"
        if self._client is not None and isinstance(self._client.terminal_error, AuthFailedError):
            state = "AUTH_FAILED"
        place = f" {self.directory}" if self.directory else ""
        return printable(f"[zk: {self.hosts}({state}){place} {len(self.history)}] ")

    # --- paths and requests ---

    def path(self, text: str) -> str:
        """Return the path that a word means.

        Raises:
            CommandError: It is not a path.
        """
        if self.directory and text and not text.startswith("/"):
            parts = [part for part in self.directory.split("/") if part]
            for part in text.split("/"):
                if part == "..":
                    if not parts:
                        raise CommandError(f"{text} leads above /")
                    del parts[-1]
                elif part not in ("", "."):
                    parts.append(part)
            text = "/" + "/".join(parts)
        return checked_path(text)

    def path_or_word(self, text: str) -> str:
        """Return the path that a word means after ``cd``, and before it the word, whose errors are of its command."""
        return self.path(text) if self.directory else text

    def refuse_chroot(self, what: str) -> None:
        """Refuse what works on nodes of the server that a chroot hides.

        Raises:
            CommandError: There is a chroot.
        """
        if self.client.add_chroot("/") != "/":
            raise CommandError(
                f"{what} below /zookeeper, which a chroot hides; connect without {self.client.add_chroot('/')}"
            )

    async def request(self, op: OpCode, request: Record, path: str | None) -> Any:
        """Make a request; an error names the node as the client does."""
        try:
            return await self.client.call(op, request)
        except ZooKeeperError as error:
            error.path = path
            raise

    async def create(self, path: str, data: bytes | None, acl: AclList = OPEN_ACL_UNSAFE) -> None:
        """Create a persistent node; its data may be null, which the client's own method does not know."""
        request = r.CreateRequest(self.client.add_chroot(path), data, acl, CreateMode.PERSISTENT)
        await self.request(OpCode.CREATE, request, path)

    def explained(self, error: ZooKeeperError) -> str:
        """Return what is printed for an error."""
        if isinstance(error, ClosedError):
            return "Not connected"
        if error.code is ErrorCode.CONNECTION_LOSS and self._client is not None and self._client.last_reason:
            error.detail = self._client.last_reason
        return text_of(error)


class _Listener:
    """Passes on the states of one client."""

    def __init__(self, shell: Shell, client: Client) -> None:
        self._shell = shell
        self._client = client

    def on_state(self, state: State) -> None:
        self._shell.show_state(self._client, state)
