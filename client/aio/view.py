"""The part of a client below its operations: the core, options for calls, the state, and how calls are made.

:class:`~zoolet.client.aio.operations.BaseClient` is the only subclass. They are two classes because one module would be
too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Literal, Self, TypeVar

from ...protocol.acl import ACL, AclList
from ...protocol.codec import Record
from ...protocol.operations import OPERATIONS
from .. import serializers
from ..serializers import Serializer, V
from ..wire import arguments, operations
from ..wire.states import State
from .call import Call, CompoundCall, RequestCall
from .core import Owner

T = TypeVar("T")
W = TypeVar("W", bound="View[Any]")


class View(Generic[V]):
    """A core with options for calls. Several views can share a core, and so a session."""

    __slots__ = ("_acl", "_core", "_of_recipe", "_operation_timeout", "_owner", "_recipe_view", "_serializer")

    def __init__(self, *args: object, **options: object) -> None:
        raise TypeError(f"{type(self).__name__} has no constructor; create a zoolet.client.Client")

    def _set_options(
        self,
        owner: Owner,
        serializer: Serializer[Any],
        acl: AclList | None,
        operation_timeout: float,
        of_recipe: bool,
    ) -> None:
        """Set the serializer, the ACL and the operation timeout of this view.

        Args:
            owner: The owner of the core, which makes the calls.
            serializer: Serializer for values.
            acl: ACL list of new nodes; None for all permissions for everyone.
            operation_timeout: Seconds that a call waits for a connection.
            of_recipe: Whether a recipe makes the calls, see :meth:`_for_recipe`.
        """
        self._core, self._serializer = owner.core, serializer
        self._acl, self._operation_timeout = acl, operation_timeout
        self._owner, self._of_recipe = owner, of_recipe
        self._recipe_view: Self | None = None

    def _make_view(
        self, serializer: Serializer[Any], acl: AclList | None, operation_timeout: float, of_recipe: bool
    ) -> Self:
        """Return a view of the same core, and of the same class, with other options."""
        view = type(self).__new__(type(self))  # the constructor of a client would create a new core
        view._set_options(self._owner, serializer, acl, operation_timeout, of_recipe)
        return view

    def __repr__(self) -> str:
        return repr(self._core)

    # --- views ---

    @property
    def serializer(self) -> Serializer[V]:
        """The serializer that converts between values and bytes."""
        return self._serializer

    def _with_serializer(self, serializer: Serializer[Any]) -> Any:
        if serializer is self._serializer:
            return self
        checked = arguments.checked_serializer(serializer)
        return self._make_view(checked, self._acl, self._operation_timeout, self._of_recipe)

    # The results are not Self, because editors would complete the names of this class only.

    def with_acl(self: W, acl: Iterable[ACL] | None) -> W:
        """Return a view of this client, with the same session, that creates nodes with a different ACL list.

        Raises:
            TypeError: *acl* is not a list of ACL entries.
        """
        checked = arguments.checked_acl(acl)
        return self._make_view(self._serializer, checked, self._operation_timeout, self._of_recipe)

    def with_operation_timeout(self: W, operation_timeout: float) -> W:
        """Return a view of this client, with the same session, whose calls wait up to *operation_timeout* seconds for a
        connection.

        Raises:
            ValueError: *operation_timeout* is negative or not a number.
        """
        checked = arguments.checked_operation_timeout(operation_timeout)
        return self._make_view(self._serializer, self._acl, checked, self._of_recipe)

    def _for_recipe(self) -> Self:
        """Return a view of this client, with the same session, for a recipe.

        Its calls are sent again while the server is too busy to try them (ThrottledOpError), with pauses from 0.05 to 5
        seconds. Later calls may overtake a repeated call. Hooks are informed of the errors that recipes expect.
        """
        if self._of_recipe:
            return self
        view = self._recipe_view  # cached, because programs often create a Lock for each block
        if view is None:
            view = self._make_view(self._serializer, self._acl, self._operation_timeout, True)
            self._recipe_view = view
        return view

    # --- state ---

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._core.session.state

    @property
    def session_id(self) -> int:
        """The id of the session, or 0 if the client has no session."""
        return self._core.session.id

    @property
    def session_password(self) -> bytes | None:
        """The password that another client needs to take over the session."""
        return self._core.session.password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds."""
        return self._core.session.timeout_ms / 1000

    @property
    def last_zxid(self) -> int:
        """The highest zxid seen in this session."""
        return self._core.session.last_zxid

    @property
    def terminal_error(self) -> Exception | None:
        """The error that all calls raise because the client can no longer be used; None while it can."""
        return self._core.terminal_error

    @property
    def last_reason(self) -> str:
        """Reason why the last connection or attempt to connect failed or was closed; empty if there was none."""
        return self._core.session.last_reason

    def valid_for(self) -> float:
        """Return the number of seconds that the session is guaranteed to survive, even if the server sends nothing.

        The time counts from the sending of the latest answered request, because the server cannot have received that
        request earlier. The result is 0 if nothing is guaranteed.
        """
        return self._core.valid_for()

    # --- calls ---

    def add_chroot(self, path: str) -> str:
        """Return the path on the server, which includes the chroot.

        Raises:
            TypeError: *path* is not a string.
            ValueError: *path* is not a valid path.
        """
        return self._core.add_chroot(path)

    def strip_chroot(self, path: str) -> str:
        """Return the path without the chroot, as the client uses it."""
        return self._core.strip_chroot(path)

    def _data(self, value: V | Literal[b""], path: str) -> bytes:
        """Encode a value for a node. With every serializer, ``b""`` is an empty node.

        Raises:
            TypeError: The serializer does not support the type of the value, or does not return bytes.
            ValueError: The serializer does not support the value.
        """
        if isinstance(value, bytes) and not value:
            return b""
        serializer = self._serializer
        try:
            data = serializer.encode(value)
        except (TypeError, ValueError) as error:
            if serializer is serializers.raw:  # the error of this serializer has a complete message
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            text = f"{path}: value must be supported by the serializer {serializer.name!r}, not {value!r:.80}: {error}"
            raise kind(text) from error
        if not isinstance(data, bytes):
            name = serializer.name
            raise TypeError(f"serializer {name!r} must return bytes, not {type(data).__name__}, for {value!r}")
        return data

    def _call(self, op: int, body: bytes, decode: operations.Decode[T], path: str | None = None) -> RequestCall[T]:
        return self._core.call(op, body, decode, path, self._operation_timeout, None, self._of_recipe)

    def _compound_call(
        self, steps: Coroutine[Any, Any, T], first: Call[Any] | None, undo: Callable[[T], None] | None = None
    ) -> Call[T]:
        return CompoundCall(asyncio.get_running_loop(), steps, first, undo)

    def call(self, operation: str | int, request: Record) -> Call[Any]:
        """Send a request of any operation in :mod:`zoolet.protocol.operations`.

        Paths in the request are paths on the server: the client does not add its chroot.

        Args:
            operation: Name or op code of the operation, see :mod:`zoolet.protocol.operations`.
            request: The record of the request.

        Returns:
            The record of the response.

        Raises:
            ValueError: The operation is unknown or has no response.
        """
        row = OPERATIONS[operations.op_code(operation)]
        if row.response is None:
            raise ValueError(f"operation {operation!r} has no response to decode")
        path = getattr(request, row.path, None) if row.path is not None else None
        return self._call(row.code, request.encode(), row.response.decode, path)
