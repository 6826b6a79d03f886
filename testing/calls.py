"""The calls of the test toolkit for programs in other languages, one row per call.

To add a call, write its method with types and a docstring, and add a row. A method about the state of a server or a
cluster belongs in ``StateCalls``, one that a proxy has as well in ``Endpoint``, any other in ``Server`` or ``Cluster``.
A method ``wait_for_*`` also needs its coroutine ``until_*``. :func:`.control.values.json_of` converts the results.

:mod:`.control.commands` derives the rest from the method of the endpoint's class:

- A server, a cluster or a proxy supports the call if its class defines the method.
- The parameters of the call are the parameters that the row describes. Others are for Python only. Types, defaults,
  choices, and whether null is allowed come from the signature. The summary is the first clause of the docstring.
- ``POST /commands/NAME`` executes the call and ``GET /commands`` lists it. ``zoolet fault NAME`` and the console read
  that list. In Python a real server rejects the call, because only the embedded class has the method (:mod:`.real`).

An action of a fault is a function in :mod:`.frames.actions` that ``ACTIONS`` lists. Each parameter of an action needs
a description here, unless another action has a parameter of the same name.
"""

from __future__ import annotations

from typing import Final

_WHO: Final = 'id of the client\'s session, or "all"'
_MEMBER: Final = "index of the member, counted from 0"
_FAULT: Final = "number of the fault"
_SECONDS: Final = "timeout in seconds"


class Call:
    """One call of a method that a test can make over HTTP.

    Args:
        name: Name of the call in the control API.
        method: Name of the method, by default *name*.
        meanings: Descriptions of the parameters, by their names in JSON. There the index of a member is ``member``.
    """

    def __init__(self, name: str, method: str = "", /, **meanings: str) -> None:
        self.name = name
        self.method = method or name
        self.meanings = meanings


CALLS: Final = (
    # sessions and connections
    Call("expire", who=_WHO),
    Call("drop", who=_WHO),
    Call("pause", who=_WHO, direction="both, requests, or replies"),
    Call("resume", who=_WHO),
    Call("refuse_connections"),
    Call("accept_connections"),
    Call("restart", keep="keep tree and sessions", downtime="seconds until connections are accepted again"),
    Call("set_read_only", on="on or off"),
    Call("advance", seconds="seconds to advance"),
    Call("skew_clock", seconds="seconds that the clock is ahead, or behind if negative"),
    # faults
    Call(
        "fault",
        seconds="for delay: seconds to wait",
        jitter="for delay: maximum of a random number of seconds to add",
        code="for error: the error, such as NO_NODE",
        limit="for hold: seconds after which the request is executed",
        at="for corrupt_reply and cut_reply: position in the reply",
        bytes_per_second="for slow_reply: the speed",
        op="operation, such as create; all by default",
        path="glob of paths; * also matches slashes",
        client="session whose requests match",
        nth="number of the only request to apply the fault to, counted from 1",
        probability="from 0 to 1",
        times="maximum number of requests to apply the fault to",
    ),
    Call("heal"),
    # state
    Call("populate", nodes="nodes by path or name: data, or objects of children with $data, $ttl..."),
    Call("set", path="the node", data="the data"),
    Call("delete", path="the node", recursive="also delete the nodes below it"),
    Call(
        "set_quota",
        path="the node",
        count="maximum number of nodes",
        bytes="maximum number of bytes",
        hard="refuse writes that exceed the quota",
    ),
    Call("reset"),
    Call("snapshot"),
    Call("restore", snapshot="number of the snapshot"),
    # views
    Call("tree", path="the node at the top"),
    Call("sessions"),
    Call("watches"),
    Call("ops", last="maximum number of requests"),
    Call("report"),
    # waiting
    Call("wait_for_node", path="the node", data="expected data of the node", timeout=_SECONDS),
    Call("wait_for_sessions", n="number of sessions", timeout=_SECONDS),
    Call("wait_for_contenders", path="the lock", n="number of contenders", timeout=_SECONDS),
    Call("wait_for_client", who=_WHO, timeout=_SECONDS),
    Call("wait_for_idle", timeout=_SECONDS),
    # a cluster
    Call("members"),
    Call("stop_leader"),
    Call("kill_leader"),
    Call("transfer_leadership", member=_MEMBER),
    Call("partition", groups="groups of members that can reach each other", noticed_after="seconds until they notice"),
    Call("lag", member=_MEMBER, seconds="seconds of delay, or 0 to catch up"),
    Call("rolling_restart"),
    Call("add_member", "add", role="participant or observer"),
    Call("remove_member", "remove", member=_MEMBER),
)
"""The calls of endpoints."""
MEMBER_CALLS: Final = tuple(
    Call(f"{name}_member", name, member=_MEMBER) for name in ("stop", "kill", "start", "pause", "resume")
)
"""The calls of the members of a cluster."""
NUMBERED_CALLS: Final = (
    Call("fault_status", fault=_FAULT),
    Call("release", fault=_FAULT),
    Call("end_fault", fault=_FAULT),
    Call("faults"),
    Call("start_recording", who=_WHO),
    Call("stop_recording", recording="number of the recording"),
)
"""The calls of :class:`~zoolet.testing.control.numbered.Numbered`, for things that are objects in Python."""
