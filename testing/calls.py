"""The calls of the test toolkit for programs in other languages, one row per call.

To add a call, write its method with types and a docstring, and add a row. A method about the state of a server or a
cluster belongs in ``StateCalls``, one that proxies also have in ``Endpoint``, any other in ``Server`` or ``Cluster``.
A method ``wait_for_*`` also needs its coroutine ``until_*``. :func:`.control.values.to_json` converts the results.

:mod:`.control.commands` derives the rest from the method of the endpoint's class:

- A server, a cluster or a proxy supports the call if its class defines the method.
- The parameters of the call are the parameters that the row describes. The rest are for Python only. Types, defaults,
  choices, and whether null is allowed come from the signature. The summary is the first clause of the docstring.
- ``POST /commands/NAME`` executes the call and ``GET /commands`` lists it. ``zoolet fault NAME`` and the console read
  that list. In Python a real server rejects the call, because only the embedded class has the method (:mod:`.real`).

An action of a fault is a function in :mod:`.frames.actions` that ``ACTIONS`` lists. Each parameter of an action needs
a description here, unless another action has a parameter of the same name.
"""

from __future__ import annotations

from typing import Final

_WHO_HELP: Final = 'id of the client\'s session, or "all"'
_MEMBER_HELP: Final = "index of the member, counted from 0"
_FAULT_HELP: Final = "number of the fault"
_TIMEOUT_HELP: Final = "timeout in seconds"


class HttpCall:
    """A method that a test can call over HTTP.

    Args:
        name: Name of the call in the control API.
        method: Name of the method, by default *name*.
        descriptions: Descriptions of the parameters, by their names in JSON. A member's index is called ``member``.
    """

    def __init__(self, name: str, method: str = "", /, **descriptions: str) -> None:
        self.name = name
        self.method = method or name
        self.descriptions = descriptions


CALLS: Final = (
    # sessions and connections
    HttpCall("expire", who=_WHO_HELP),
    HttpCall("drop", who=_WHO_HELP),
    HttpCall("pause", who=_WHO_HELP, direction="both, requests, or replies"),
    HttpCall("resume", who=_WHO_HELP),
    HttpCall("refuse_connections"),
    HttpCall("accept_connections"),
    HttpCall("restart", keep="keep tree and sessions", downtime="seconds until connections are accepted again"),
    HttpCall("set_read_only", on="on or off"),
    HttpCall("advance", seconds="seconds to advance"),
    HttpCall("skew_clock", seconds="seconds that the clock is ahead, or behind if negative"),
    # faults
    HttpCall(
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
    HttpCall("heal"),
    # state
    HttpCall("populate", nodes="nodes by path or name: data, or objects of children with $data, $ttl..."),
    HttpCall("set", path="the node", data="the data"),
    HttpCall("delete", path="the node", recursive="also delete the nodes below it"),
    HttpCall(
        "set_quota",
        path="the node",
        count="maximum number of nodes",
        bytes="maximum number of bytes",
        hard="refuse writes that exceed the quota",
    ),
    HttpCall("reset"),
    HttpCall("snapshot"),
    HttpCall("restore", snapshot="number of the snapshot"),
    # views
    HttpCall("tree", path="the node at the top"),
    HttpCall("sessions"),
    HttpCall("watches"),
    HttpCall("ops", last="maximum number of requests"),
    HttpCall("report"),
    # waiting
    HttpCall("wait_for_node", path="the node", data="expected data of the node", timeout=_TIMEOUT_HELP),
    HttpCall("wait_for_sessions", n="number of sessions", timeout=_TIMEOUT_HELP),
    HttpCall("wait_for_contenders", path="the lock", n="number of contenders", timeout=_TIMEOUT_HELP),
    HttpCall("wait_for_client", who=_WHO_HELP, timeout=_TIMEOUT_HELP),
    HttpCall("wait_for_idle", timeout=_TIMEOUT_HELP),
    # a cluster
    HttpCall("members"),
    HttpCall("stop_leader"),
    HttpCall("kill_leader"),
    HttpCall("transfer_leadership", member=_MEMBER_HELP),
    HttpCall(
        "partition", groups="groups of members that can reach each other", noticed_after="seconds until they notice"
    ),
    HttpCall("lag", member=_MEMBER_HELP, seconds="seconds of delay, or 0 to catch up"),
    HttpCall("rolling_restart"),
    HttpCall("add_member", "add", role="participant or observer"),
    HttpCall("remove_member", "remove", member=_MEMBER_HELP),
)
"""The calls of servers, clusters and proxies. A class supports the calls whose methods it defines."""
MEMBER_CALLS: Final = tuple(
    HttpCall(f"{name}_member", name, member=_MEMBER_HELP) for name in ("stop", "kill", "start", "pause", "resume")
)
"""The calls of the members of a cluster."""
NUMBERED_CALLS: Final = (
    HttpCall("fault_status", fault=_FAULT_HELP),
    HttpCall("release", fault=_FAULT_HELP),
    HttpCall("end_fault", fault=_FAULT_HELP),
    HttpCall("faults"),
    HttpCall("start_recording", who=_WHO_HELP),
    HttpCall("stop_recording", recording="number of the recording"),
)
"""The calls of :class:`~zoolet.testing.control.numbered.NumberedObjects`, for things that are objects in Python."""
