"""The throttle, which limits the rate of new sessions."""

from __future__ import annotations

from support.engine import make_engine
from support.peer import Peer

from zoolet.server.core.settings import EngineSettings


def test_new_session_takes_token_that_is_restored_by_time() -> None:
    engine = make_engine(EngineSettings(throttle_tokens=2, throttle_fill_time=100, throttle_fill_count=1))

    came = [Peer(engine).connect() is not None for _ in range(3)]
    engine.set_time(0, 100)
    later = Peer(engine).connect()

    assert came == [True, True, False]
    assert later is not None
