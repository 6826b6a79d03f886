"""reconfig in an ensemble of one, and the permission to change the configuration."""

from __future__ import annotations

import pytest
from support.calls import connect_peer, create, set_acl, set_data
from support.engine import make_engine
from support.numbers import NO_AUTH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import BadArgumentsError, BadVersionError, NewConfigNoQuorumError, NoAuthError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

SUPER_DIGEST = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # super:admin


# --- reconfig ---


OBSERVER = "server.100=0.0.0.0:1234:2345:observer;0.0.0.0:3456"


@pytest.fixture
def ensemble() -> Peer:
    """The super user of an ensemble of one."""
    peer = connect_peer(make_engine(EngineSettings(reconfig_enabled=True, super_digest=SUPER_DIGEST)))
    peer.auth("digest", b"super:admin")
    return peer


def reconfig(
    peer: Peer, joining: str | None = None, leaving: str | None = None, new: str | None = None, version: int = -1
) -> r.GetDataResponse:
    answer = peer.call(OpCode.RECONFIG, r.ReconfigRequest(joining, leaving, new, version))
    assert isinstance(answer, r.GetDataResponse)
    return answer


def test_initial_dynamic_configuration_has_version_0(ensemble: Peer) -> None:
    assert ensemble.get("/zookeeper/config")[0] == (b"server.1=localhost:2888:3888:participant;0.0.0.0:2181\nversion=0")


def test_observer_joins_and_leaves_by_reconfig(ensemble: Peer) -> None:
    joined_config = reconfig(ensemble, joining=OBSERVER).data or b""
    left_config = reconfig(ensemble, leaving="100").data or b""

    assert OBSERVER.encode() in joined_config
    assert OBSERVER.encode() not in left_config
    assert left_config.endswith(b"version=%x" % ensemble.engine.zxid)


def test_role_of_server_may_be_in_capital_letters(ensemble: Peer) -> None:
    assert OBSERVER.encode() in (reconfig(ensemble, joining=OBSERVER.replace("observer", "OBSERVER")).data or b"")


def test_watch_on_config_node_reports_reconfig(ensemble: Peer) -> None:
    ensemble.get("/zookeeper/config", watch=True)

    config = reconfig(ensemble, joining=OBSERVER)

    assert ensemble.receive() == [(3, "/zookeeper/config")]
    assert ensemble.get("/zookeeper/config")[0] == config.data


def test_reconfig_from_different_version_is_refused(ensemble: Peer) -> None:
    with pytest.raises(BadVersionError):
        reconfig(ensemble, joining=OBSERVER, version=ensemble.engine.zxid + 1)


@pytest.mark.parametrize("joining", ["some thing", "server.1=localhost", "server.x=a:1:2;3", "server.2=a:1:2:leader;3"])
def test_reconfig_with_invalid_server_is_refused(ensemble: Peer, joining: str) -> None:
    with pytest.raises(BadArgumentsError):
        reconfig(ensemble, joining=joining)


def test_addition_of_second_participant_has_no_quorum(ensemble: Peer) -> None:
    with pytest.raises(NewConfigNoQuorumError):
        reconfig(ensemble, joining="server.2=a:1:2:participant;3")


def test_last_participant_cannot_leave(ensemble: Peer) -> None:
    with pytest.raises(BadArgumentsError):
        reconfig(ensemble, leaving="1")


def test_reconfig_needs_write_permission_on_config() -> None:
    peer = connect_peer(make_engine(EngineSettings(reconfig_enabled=True)))

    with pytest.raises(NoAuthError):
        reconfig(peer, joining=OBSERVER)


# --- the configuration node ---


def test_config_node_is_readable_but_not_writable(peer):
    assert peer.get("/zookeeper/config")[0] == b""
    assert set_data(peer, "/zookeeper/config").err == NO_AUTH
    assert set_acl(peer, "/zookeeper/config", OPEN_ACL_UNSAFE).err == NO_AUTH
    assert create(peer, "/zookeeper/config/x").err == NO_AUTH


def test_configuration_is_changed_only_by_super_user(engine: Engine) -> None:
    peer = connect_peer(engine)

    with pytest.raises(NoAuthError):
        peer.set("/zookeeper/config", b"x")

    with pytest.raises(NoAuthError):
        peer.call(OpCode.SET_ACL, r.SetACLRequest("/zookeeper/config", OPEN_ACL_UNSAFE, -1))
