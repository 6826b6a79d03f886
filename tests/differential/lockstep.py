"""Scripts of steps on a :class:`~differential.pair.Pair`, which is replaced after a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from differential.pair import MAX_TIMEOUT, MIN_TIMEOUT, SUPER, Pair, Request, Step
from support.apache import ApacheZooKeeper

from zoolet.protocol import records as r
from zoolet.protocol.acl import digest_id
from zoolet.protocol.operations import OpCode
from zoolet.server.core.tree import RESERVED

CONNECTIONS = 3


class Lockstep:
    """A pair of servers that is replaced after a difference, which leaves its two sides in different states.

    Args:
        release: The release of the real server.
        enforce_quota: Whether to refuse writes that exceed a hard limit.
        admin: Whether to start the admin server of the real server.
    """

    def __init__(self, release: str, *, enforce_quota: bool = False, admin: bool = False) -> None:
        self.release = release
        self.enforce_quota = enforce_quota
        self.admin = admin
        self.apache: ApacheZooKeeper | None = None
        self.pair: Pair | None = None
        self._before = 0

    @property
    def done(self) -> int:
        """The number of steps so far."""
        return self._before + (self.pair.steps if self.pair else 0)

    def start(self) -> Pair:
        """Return the current pair, which is started if necessary."""
        if self.pair is None:
            self.apache = ApacheZooKeeper(
                self.release,
                config={
                    "minSessionTimeout": str(MIN_TIMEOUT),
                    "maxSessionTimeout": str(MAX_TIMEOUT),
                },  # such long timeouts that no session expires on its own
                properties={
                    "zookeeper.DigestAuthenticationProvider.superDigest": digest_id(SUPER.encode()),
                    "znode.container.checkIntervalMs": "3600000",
                    "zookeeper.enforceQuota": str(self.enforce_quota).lower(),
                },
                admin=self.admin,
            ).__enter__()
            self.pair = Pair(self.apache, CONNECTIONS, enforce_quota=self.enforce_quota)
        return self.pair

    def stop(self) -> None:
        """Stop both sides. The next script starts a new pair."""
        if self.pair is not None and self.apache is not None:
            self._before += self.pair.steps
            self.pair.close()
            self.apache.__exit__(None, None, None)
        self.pair = self.apache = None

    def compare(self, script: Iterable[Step]) -> None:
        """Run the steps on both sides, and clear both trees.

        Raises:
            AssertionError: The two sides differ.
        """
        pair = self.start()
        try:
            for step in script:
                real, ours = pair.do(step)
                assert ours == real, f"zoolet {ours!r}, ZooKeeper {real!r}, after {step}"
            for step in clear_steps(pair):
                real, ours = pair.do(step)
                assert ours == real, f"zoolet {ours!r}, ZooKeeper {real!r}, while clearing, after {step}"
        except BaseException:
            self.stop()
            raise


def clear_steps(pair: Pair) -> Iterator[Step]:
    """Yield steps that close all sessions, and then delete the remaining nodes as the super user, children first."""
    for who in range(CONNECTIONS):
        yield Request(who, OpCode.CLOSE_SESSION, b"")
    yield Request(0, OpCode.AUTH, r.AuthPacket(0, "digest", SUPER.encode()).encode(), -4)
    for path, _ in reversed(list(pair.engine.tree.walk())):
        if path not in RESERVED:
            yield Request(0, OpCode.DELETE, r.DeleteRequest(path, -1).encode())
    yield Request(0, OpCode.CLOSE_SESSION, b"")
