"""The clocks of a remote server, derived from the times in its ``cons`` output."""

from __future__ import annotations

import time

import pytest

from zoolet.client.four_letters import Sample
from zoolet.console.remote_clocks import Clocks

OWN_SESSION = "0x7"


def sample(**connections: dict[str, float]) -> Sample:
    """Return a sample taken now. The times of its connections are seconds relative to now."""
    rows = {
        address: {
            "sid": OWN_SESSION if address == "own" else "0x1",
            "est": f"{(time.time() + facts.get('est', 0)) * 1000:.0f}",
            "lresp": f"{(1e6 + time.monotonic() + facts.get('lresp', 0)) * 1000:.0f}",
        }
        for address, facts in connections.items()
    }
    return Sample(time.monotonic(), {"x": 1.0}, "leader", rows)


def test_old_connections_do_not_determine_server_clock() -> None:
    clocks = Clocks()
    old = {"est": -10_800.0}
    for each in (sample(a=old), sample(a=old), sample(), sample(a=old, b=old)):
        clocks.add(each, OWN_SESSION)
        assert clocks.ahead == 0.0


def test_new_connection_determines_server_clock() -> None:
    clocks = Clocks()
    clocks.add(sample(a={"est": -10_800.0}), OWN_SESSION)
    clocks.add(sample(a={"est": -10_800.0}, b={"est": 3600.0}), OWN_SESSION)
    assert clocks.ahead == pytest.approx(3600.0, abs=1.0)


def test_own_connection_determines_server_clock_at_start() -> None:
    clocks = Clocks()
    clocks.add(sample(own={"est": -3600.0}, a={"est": -99_999.0}), OWN_SESSION)
    assert clocks.ahead == pytest.approx(-3600.0, abs=1.0)


def test_last_contact_uses_monotonic_clock_of_server() -> None:
    clocks = Clocks()
    clocks.add(now := sample(a={"lresp": -30.0}, b={}), OWN_SESSION)
    assert clocks.since(now.connections["a"]) == pytest.approx(30.0, abs=1.0)
    assert clocks.since(now.connections["b"]) == pytest.approx(0.0, abs=1.0)
    assert clocks.since({"lresp": "0"}) == 0.0


def test_restart_of_machine_resets_server_clock() -> None:
    clocks = Clocks()
    clocks.add(sample(a={}), OWN_SESSION)
    clocks.add(again := sample(a={"lresp": -90_000.0}), OWN_SESSION)
    assert clocks.since(again.connections["a"]) == pytest.approx(0.0, abs=1.0)
