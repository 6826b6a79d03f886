"""The commands for a test server: names and parameters are those of :class:`~zoolet.server.testing.server.Server`.

The first line of a function's docstring is its description in ``GET /commands``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zoolet.protocol.errors import ErrorCode
from zoolet.server.testing.control.control import MISSING, Command, Control, Parameter
from zoolet.server.testing.control.values import UsageError, data_of, session_of, tree_of
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.frames import actions
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.recording.recording import Recording
from zoolet.server.testing.state.history import Snapshot

COMMANDS: Final[dict[str, Command]] = {}
"""The commands by name."""
MAX_WAIT: Final = 600.0
"""Seconds that a command may wait."""


def control_of(endpoint: Endpoint) -> Control:
    """Return the control of a server, a cluster or a proxy."""
    from zoolet.server.testing.cluster.cluster import Cluster

    if isinstance(endpoint, Cluster):
        from zoolet.server.testing.control.cluster_commands import CLUSTER_COMMANDS

        return Control(endpoint, COMMANDS | CLUSTER_COMMANDS)
    return Control(endpoint, COMMANDS)


# --- parameters ---


def _typed(kind: type | tuple[type, ...], name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UsageError(f"{value!r} is not {name}")
        return value

    return read


def _text(meaning: str, default: object = MISSING) -> Parameter:
    return Parameter("text", meaning, _typed(str, "text"), default)


def _number(meaning: str, default: object = MISSING) -> Parameter:
    return Parameter("number", meaning, _typed((int, float), "a number"), default)


def _seconds(value: Any) -> float:
    seconds: float = _typed((int, float), "a number")(value)
    if not 0 <= seconds <= MAX_WAIT:
        raise UsageError(f"{value!r} is not from 0 to {MAX_WAIT:g} seconds")
    return seconds


def _whole(meaning: str, default: object = MISSING) -> Parameter:
    return Parameter("whole number", meaning, _typed(int, "a whole number"), default)


def _flag(meaning: str, default: object = MISSING) -> Parameter:
    return Parameter("true or false", meaning, _typed(bool, "true or false"), default)


def _session(meaning: str, default: object = MISSING) -> Parameter:
    return Parameter('session id or "all"', meaning, session_of, default)


_TIMEOUT: Final = Parameter("number", "seconds", _seconds, 5.0)
_WHO: Final = _session("whose")


def _command(*, proxies: bool = False, **parameters: Parameter) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        summary, _, _ = function.__doc__.partition("\n")
        COMMANDS[function.__name__.rstrip("_")] = Command(summary, parameters, function, proxies)
        return function

    return register


# --- sessions and connections ---


@_command(who=_WHO)
def expire(control: Control, who: Any) -> None:
    """Expire sessions."""
    control.server.expire(who)


@_command(proxies=True, who=_WHO)
def drop(control: Control, who: Any) -> None:
    """Close the connections of sessions, which stay alive."""
    control.endpoint.drop(who)


@_command(proxies=True, who=_WHO, direction=_text("both, requests, or replies", "both"))
def pause(control: Control, who: Any, direction: Any) -> None:
    """Stop the traffic with clients until resume."""
    control.endpoint.pause(who, direction=direction)


@_command(proxies=True, who=_WHO)
def resume(control: Control, who: Any) -> None:
    """End a pause."""
    control.endpoint.resume(who)


@_command(proxies=True)
def refuse_connections(control: Control) -> None:
    """Refuse new connections."""
    control.endpoint.refuse_connections()


@_command(proxies=True)
def accept_connections(control: Control) -> None:
    """Accept connections again."""
    control.endpoint.accept_connections()


@_command(
    keep=_flag("keep tree and sessions", True),
    downtime=_number("seconds without a server", 0.0),
)
def restart(control: Control, keep: bool, downtime: float) -> None:
    """Stop and start the server on the same port."""
    control.server.restart(keep=keep, downtime=downtime)


@_command(on=_flag("on or off"))
def set_read_only(control: Control, on: bool) -> None:
    """Switch read-only mode."""
    control.server.set_read_only(on)


@_command(seconds=_number("by how much"))
def advance(control: Control, seconds: float) -> None:
    """Advance a manual clock."""
    control.server.advance(seconds)


@_command(seconds=_number("by how much"))
def skew_clock(control: Control, seconds: float) -> None:
    """Set the wall clock ahead, or back."""
    control.server.skew_clock(seconds)


# --- faults ---

_ACTIONS: Final[dict[str, tuple[Callable[..., actions.Action], tuple[str, ...]]]] = {
    "delay": (actions.delay, ("seconds", "jitter")),
    "error": (actions.error, ("code",)),
    "drop_request": (actions.drop_request, ()),
    "lose_reply": (actions.lose_reply, ()),
    "close_after": (actions.close_after, ()),
    "hold": (actions.hold, ("limit",)),
    "withhold_event": (actions.withhold_event, ()),
    "corrupt_reply": (actions.corrupt_reply, ("at",)),
    "cut_reply": (actions.cut_reply, ("at",)),
    "slow_reply": (actions.slow_reply, ("bytes_per_second",)),
}
"""The actions by name, and the parameters that they have."""


def _code(value: object) -> int:
    name = value.upper() if isinstance(value, str) else ""
    if name in ErrorCode.__members__:
        return ErrorCode[name]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise UsageError(f"{value!r} is not an error: a name such as NO_NODE, or its number")


@_command(
    proxies=True,
    action=_text("one of " + ", ".join(_ACTIONS)),
    seconds=_number("of delay", None),
    jitter=_number("of delay: up to so many seconds more, at random", None),
    code=Parameter("name or number", "of error, such as NO_NODE", _code, None),
    limit=_number("of hold: seconds after which the request is executed", None),
    at=_whole("of corrupt_reply and cut_reply: where in the reply", None),
    bytes_per_second=_number("of slow_reply", None),
    op=_text("the operation, such as create; all if it is left out", None),
    path=_text("a glob, in which * matches slashes, too", None),
    client=_session("whose requests", None),
    nth=_whole("only the one with this number, counted from 1", None),
    probability=_number("from 0 to 1", None),
    times=_whole("at most so often", None),
)
def fault(control: Control, action: str, op: Any, path: Any, client: Any, nth: Any, **others: Any) -> int:
    """Begin a fault; returns its number."""
    if action not in _ACTIONS:
        raise UsageError(f"action is {action!r}; it must be one of {', '.join(_ACTIONS)}")
    make, names = _ACTIONS[action]
    given = {name: others.pop(name) for name in ("seconds", "jitter", "code", "limit", "at", "bytes_per_second")}
    settings = {name: value for name, value in given.items() if value is not None}
    if unknown := sorted(set(settings) - set(names)):
        raise UsageError(f"{action} has no {', '.join(unknown)}")
    try:
        made = make(**settings)
    except TypeError:
        raise UsageError(f"{action} needs {names[0]}") from None
    return control.add(control.endpoint.fault(made, op, path, client=client, nth=nth, **others))


@_command(proxies=True, fault=_whole("its number"))
def fault_status(control: Control, fault: int) -> dict[str, Any]:
    """Return how often a fault was applied, and how often it matched."""
    return _status(control.find(fault, Fault))


def _status(fault: Fault) -> dict[str, Any]:
    too_long = {"held_too_long": True} if fault.was_too_long else {}
    return {"hits": fault.hits, "seen": fault.seen, **too_long}


@_command(proxies=True, fault=_whole("its number"))
def release(control: Control, fault: int) -> None:
    """Execute what a fault holds, and hold no more."""
    control.find(fault, Fault).release()


@_command(proxies=True, fault=_whole("its number"))
def end_fault(control: Control, fault: int) -> dict[str, Any]:
    """End a fault; returns how often it was applied."""
    ended: Fault = control.forget(fault, Fault)
    ended.end()
    return _status(ended)


@_command(proxies=True)
def faults(control: Control) -> list[dict[str, Any]]:
    """Return the faults that are active, those of other programs too: number, text, and how often each was applied."""
    shown = []
    for fault in control.endpoint.faults():
        holds = (fault.action.holds or fault.action.events) and not fault.action.released
        shown.append({"fault": control.number_of(fault), "text": repr(fault), "holds": holds, **_status(fault)})
    return shown


@_command(proxies=True)
def heal(control: Control) -> None:
    """End all faults and pauses, and accept connections."""
    control.endpoint.heal()


# --- state ---


@_command(
    nodes=Parameter("object", "nodes by path or name: data, or objects of children with $data, $ttl...", tree_of),
)
def populate(control: Control, nodes: dict[str, Any]) -> None:
    """Create nodes."""
    control.server.populate(nodes)


@_command(path=_text("the node"), data=Parameter('text or {"base64": ""}', "the data", data_of))
def set_(control: Control, path: str, data: bytes | None) -> None:
    """Set a node's data."""
    control.server.set(path, data)


@_command(path=_text("the node"), recursive=_flag("and those below it", False))
def delete(control: Control, path: str, recursive: bool) -> None:
    """Delete a node."""
    control.server.delete(path, recursive=recursive)


@_command(
    path=_text("its node"),
    count=_whole("the most nodes", None),
    bytes=_whole("the most bytes", None),
    hard=_flag("refuse what exceeds it", True),
)
def set_quota(control: Control, path: str, **limits: Any) -> None:
    """Limit a subtree."""
    control.server.set_quota(path, **limits)


@_command()
def reset(control: Control) -> None:
    """Remove all sessions, nodes and faults."""
    control.server.reset()


@_command()
def snapshot(control: Control) -> int:
    """Remember the tree; returns the number of the snapshot."""
    return control.add(control.server.snapshot())


@_command(snapshot=_whole("its number"))
def restore(control: Control, snapshot: int) -> None:
    """Restore the tree of a snapshot."""
    control.server.restore(control.find(snapshot, Snapshot))


# --- views ---


@_command(path=_text("the node at the top", "/"))
def tree(control: Control, path: str) -> object:
    """Return the nodes by path."""
    return control.server.tree(path)


@_command()
def sessions(control: Control) -> object:
    """Return the sessions by id."""
    return control.server.sessions()


@_command()
def watches(control: Control) -> object:
    """Return the watches."""
    return control.server.watches()


@_command(proxies=True, last=_whole("how many", None))
def ops(control: Control, last: int | None) -> object:
    """Return the last requests."""
    return control.endpoint.ops(last)


@_command(proxies=True)
def report(control: Control) -> str:
    """Return the state as text."""
    return control.endpoint.report()


@_command(proxies=True, who=_session("whose", "all"))
def start_recording(control: Control, who: Any) -> int:
    """Begin to record requests; returns the number of the recording."""
    return control.add(control.endpoint.recording(who).__enter__())


@_command(
    proxies=True,
    recording=_whole("its number"),
)
def stop_recording(control: Control, recording: int) -> Recording:
    """End a recording; returns its requests."""
    ended: Recording = control.find(recording, Recording)
    ended.__exit__()
    control.forget(recording, Recording)
    return ended


# --- waiting ---


@_command(
    path=_text("the node"),
    data=Parameter('text or {"base64": ""}', "the data that it must have", data_of, None),
    timeout=_TIMEOUT,
)
def wait_for_node(control: Control, path: str, data: bytes | None, timeout: float) -> object:
    """Wait until there is a node; returns it."""
    return control.server.until_node(path, data, timeout=timeout)


@_command(n=_whole("how many"), timeout=_TIMEOUT)
def wait_for_sessions(control: Control, n: int, timeout: float) -> object:
    """Wait until so many sessions are alive."""
    return control.server.until_sessions(n, timeout)


@_command(path=_text("the lock"), n=_whole("how many"), timeout=_TIMEOUT)
def wait_for_contenders(control: Control, path: str, n: int, timeout: float) -> object:
    """Wait until so many hold or wait for a lock."""
    return control.server.until_contenders(path, n, timeout)


@_command(proxies=True, timeout=_TIMEOUT)
def wait_for_idle(control: Control, timeout: float) -> object:
    """Wait until no requests come and none is held."""
    return control.endpoint.until_idle(timeout)
