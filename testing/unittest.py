"""Test cases for ``unittest``: one with a ZooKeeper server, and replacements for the test cases of kazoo.

``KazooTestHarness`` and ``KazooTestCase`` replace the classes of ``kazoo.testing``: change only the import. They need
neither Java nor a ZooKeeper installation.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import unittest
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from . import registry
from .cluster.cluster import MAX_MEMBERS, Cluster
from .cluster.real import make_stand_in
from .server import Server

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger(__name__)
__unittest = True  # a marker for unittest: tracebacks omit the lines of this module


class ZooletTestCase(unittest.TestCase):
    """A test case, or a mixin for one, with ``self.zoolet``: one server per class, with fresh state for each test.

    Attributes:
        zoolet_options: Arguments of the :class:`~zoolet.testing.Server` or the :class:`~zoolet.testing.Cluster`.
        zoolet_members: Number of members. With more than one member, ``self.zoolet`` is a cluster.
        zoolet: The server or the cluster.
    """

    zoolet_options: ClassVar[dict[str, Any]] = {}
    zoolet_members: ClassVar[int] = 1
    zoolet: ClassVar[Any]  # a Server, a Cluster or a RealServer

    @classmethod
    def setUpClass(cls) -> None:
        """Start the server or the cluster."""
        super().setUpClass()
        cls._start_server()
        cls.addClassCleanup(lambda: cls.zoolet.__exit__(None, None, None))  # with pytest, __exit__() looks for leaks

    @classmethod
    def _start_server(cls) -> None:
        members = cls.zoolet_members if cls.zoolet_members > 1 else None
        if registry.real_hosts is not None:
            cls.zoolet = make_stand_in(registry.real_hosts, cls.zoolet_options, members=members)
        elif members is not None:
            cls.zoolet = Cluster(cls.zoolet_members, **cls.zoolet_options)
        else:
            cls.zoolet = Server(**cls.zoolet_options)
        cls.zoolet.start()

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Reset the server, and run the test. This is not in ``setUp``, because subclasses may not call ``super()``.

        As with pytest, the report of a failed test includes the state of the servers, and leaks are reported as a
        warning.
        """
        if hasattr(type(self), "zoolet"):  # setUpClass has not run if the class is skipped
            if not self.zoolet.running:  # an earlier test has stopped the server
                self.zoolet.start()
            elif isinstance(self.zoolet, Cluster) and self.zoolet.has_changed:
                self.zoolet.stop()
                self._start_server()
            else:
                self.zoolet.reset()
        runs_here = registry.test is None  # otherwise pytest's plugin writes the report
        if runs_here and not isinstance(result, unittest.TestResult):
            return super().run(result)
        registry.test = test = registry.test or registry.Test()
        wrapped = [name for name in ("addError", "addFailure", "addSubTest") if hasattr(result, name)]
        before = {name: vars(result)[name] for name in wrapped if name in vars(result)}
        for name in wrapped:
            setattr(result, name, partial(self._add_with_state, test, getattr(result, name), runs_here))
        try:
            return super().run(result)
        finally:
            for name in wrapped:
                delattr(result, name)
            vars(result).update(before)
            if runs_here:
                registry.test = None
                self._warn_about_leaks(test)

    @staticmethod
    def _add_with_state(test: registry.Test, add: Callable[..., None], runs_here: bool, *arguments: Any) -> None:
        """Add an error to a result, with the state of the servers, which the test's cleanups may stop later.

        The state is a note of the error, because some results, such as Django's, keep no texts.

        Args:
            test: The servers of the test.
            add: Method of the result.
            runs_here: Whether to add the note. With pytest's plugin, the plugin reports the state.
            arguments: Arguments of the method. The last one describes the error, or is None for a passed subtest.
        """
        if arguments[-1] is None:
            return add(*arguments)
        test.failed |= {repr(one): registry.report_of(one) for one in test.used()}
        error, note = arguments[-1][1], "\n".join(f"--- {name} ---\n{state}" for name, state in test.failed.items())
        with suppress(AttributeError, TypeError):  # a frozen error accepts no note
            if runs_here:
                error.add_note(note)
        add(*arguments)
        with suppress(ValueError):  # a later test may raise the same error object
            getattr(error, "__notes__", []).remove(note)
        return None

    def _warn_about_leaks(self, test: registry.Test) -> None:
        if not test.failed and (left := test.end()):
            lines = [f"  at {name}: {leak}" for name, leaks in left.items() for leak in leaks]
            warnings.warn("\n".join([f"{self.id()} has left at zoolet:", *lines]), ResourceWarning, stacklevel=2)


@cache
def _shared_cluster() -> Cluster:
    """Return the cluster that all harnesses for kazoo in this process share. The first call starts it.

    ZOOKEEPER_CLUSTER_SIZE sets the number of members, three by default. As with kazoo's own cluster, the first port is
    ZOOKEEPER_PORT_OFFSET, or 20000, and each following port is ten higher, because some tests contain these numbers. If
    one of the ports is in use, the cluster uses free ports.
    """
    config = {
        "reconfigEnabled": True,
        "readonlymode.enabled": True,
        "localSessionsEnabled": os.environ.get("ZOOKEEPER_LOCAL_SESSION_RO") == "true",
        "localSessionsUpgradingEnabled": True,
        "DigestAuthenticationProvider.superDigest": "super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
    }
    text = os.environ.get("ZOOKEEPER_CLUSTER_SIZE", "3")
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= (size := int(text)) <= MAX_MEMBERS):
        raise ValueError(f"ZOOKEEPER_CLUSTER_SIZE must be a number from 1 to {MAX_MEMBERS}, not {text[:20]!r}")
    offset, highest = os.environ.get("ZOOKEEPER_PORT_OFFSET", "20000"), 65535 - 10 * (size - 1)
    if not (offset.isascii() and offset.isdecimal() and len(offset) < 6 and 1 <= (first := int(offset)) <= highest):
        raise ValueError(f"ZOOKEEPER_PORT_OFFSET must be a port from 1 to {highest}, not {offset[:20]!r}")
    cluster = Cluster(size, ports=[first + 10 * number for number in range(size)], config=config)
    try:
        cluster.start()
    except OSError as error:
        _log.info("using free ports for the cluster, because the default ports are not available: %s", error)
        cluster = Cluster(size, config=config)
        cluster.start()
    atexit.register(cluster.stop)
    return cluster


def get_global_cluster() -> _KazooCluster:
    """Return the cluster that all harnesses share, as the function in ``kazoo.testing.harness`` does.

    Raises:
        ValueError: ZOOKEEPER_CLUSTER_SIZE or ZOOKEEPER_PORT_OFFSET is invalid.
    """
    return _KazooCluster(_KazooMember(_shared_cluster(), index) for index in range(len(_shared_cluster())))


class _KazooMember:
    """A member, with the interface of the servers in kazoo's ``cluster``."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self._cluster = cluster
        self._member = cluster[index]

    address = property(lambda self: self._member.address)
    secure_address = property(lambda self: self._member.address)
    client_port = property(lambda self: self._member.port)
    secure_client_port = property(lambda self: self._member.port)
    running = property(lambda self: self._member.running)

    def run(self) -> None:
        """Start the member, unless it is running."""
        self._member.start()

    def stop(self) -> None:
        """Stop the member, which keeps its data, as on a disk."""
        self._member.stop()

    def reset(self) -> None:
        """Remove all state of the cluster, because the members share the state."""
        self._cluster.reset()

    def destroy(self) -> None:
        """Remove all state of the cluster. The member keeps running until the process exits."""
        self._cluster.reset()

    def get_logs(self, num_lines: int = 100) -> list[str]:
        """Return the last *num_lines* requests to this member, as text."""
        return [str(op) for op in self._member.ops(num_lines)]


class _KazooCluster(list[_KazooMember]):
    """A replacement for kazoo's ``cluster`` that lists the members."""

    def start(self) -> None:
        """Start the members that are not running."""
        for member in self:
            member.run()

    def stop(self) -> None:
        """Stop all members, which keep their data."""
        cluster = _shared_cluster()
        cluster.refuse_connections()  # clients must not reconnect to a member that is about to stop
        for member in self:
            member.stop()
        cluster.accept_connections()

    def reset(self) -> None:
        """Remove all state of the cluster."""
        _shared_cluster().reset()

    def terminate(self) -> None:
        """Remove all state of the cluster. The members keep running until the process exits."""
        _shared_cluster().reset()

    def get_logs(self, num_lines: int = 100) -> list[str]:
        """Return the last *num_lines* requests to the first member, as text."""
        return self[0].get_logs(num_lines)


class KazooTestHarness(unittest.TestCase):
    """A replacement for ``kazoo.testing.KazooTestHarness``.

    Attributes:
        client: A started KazooClient with its own chroot.
        hosts: Connection string of the client.
    """

    DEFAULT_CLIENT_TIMEOUT = 15

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client: Any = None
        self.hosts = ""
        self._clients: list[KazooClient] = []

    @property
    def cluster(self) -> _KazooCluster:
        """The cluster that all harnesses in this process share."""
        return get_global_cluster()

    @property
    def servers(self) -> str:
        """The connection string of all servers, without a chroot."""
        return ",".join(member.address for member in self.cluster)

    secure_servers = servers

    def log(self, level: int, msg: str, *args: Any, **kwargs: Any) -> None:
        """Log a message with this module's logger."""
        _log.log(level, msg, *args, **kwargs)

    def _get_nonchroot_client(self) -> KazooClient:
        from kazoo.client import KazooClient

        client = KazooClient(self.servers)
        self._clients.append(client)
        return client

    def _get_client(self, **client_options: Any) -> KazooClient:
        from kazoo.client import KazooClient

        client_options.setdefault("timeout", self.DEFAULT_CLIENT_TIMEOUT)
        client = KazooClient(self.hosts, **client_options)
        self._clients.append(client)
        return client

    def setup_zookeeper(self, **client_options: Any) -> None:
        """Start a client with its own chroot. The first call starts the cluster."""
        self.cluster.start()
        chroot = f"/kazootests{uuid.uuid4().hex}"
        _shared_cluster().populate({chroot: b""})
        self.hosts = self.servers + chroot
        self.client = self._get_client(**client_options)
        self.client.start()
        self.client.ensure_path("/")

    def teardown_zookeeper(self) -> None:
        """Stop all clients."""
        from kazoo.exceptions import KazooException

        while self._clients:
            client = self._clients.pop()
            try:
                client.stop()
                client.close()
            except KazooException:
                _log.exception("could not stop %r", client)
        self.client = None

    def lose_connection(self, event_factory: Callable[[], Any] = threading.Event) -> None:
        """Close the client's connection, and wait until it has reconnected.

        Raises:
            AssertionError: The client did not notice the loss within 5 s, or did not reconnect within 15 s.
        """
        self._interrupt_session(_shared_cluster().drop, "SUSPENDED", event_factory)

    def expire_session(self, event_factory: Callable[[], Any] = threading.Event) -> None:
        """Expire the client's session, and wait until the client has a new one.

        Raises:
            AssertionError: The client did not notice the loss within 5 s, or did not reconnect within 15 s.
        """
        self._interrupt_session(_shared_cluster().expire, "LOST", event_factory)

    def _interrupt_session(
        self, disturb: Callable[[Any], None], expected: str, event_factory: Callable[[], Any]
    ) -> None:
        lost, recovered = event_factory(), event_factory()

        def listen(state: str) -> bool:
            if state == expected:
                lost.set()
            elif lost.is_set() and state == "CONNECTED":
                recovered.set()
                return True
            return False

        self.client.add_listener(listen)
        disturb(self.client)
        lost.wait(5)
        if not lost.is_set():
            raise AssertionError(f"the client was not {expected} within 5 s")
        recovered.wait(15)
        if not recovered.is_set():
            raise AssertionError("the client did not reconnect within 15 s")
        self.client.retry(self.client.get_async, "/")


class KazooTestCase(KazooTestHarness):
    """A replacement for ``kazoo.testing.KazooTestCase``."""

    def setUp(self) -> None:
        """Start a client with its own chroot, and the cluster if it is not running."""
        self.setup_zookeeper()

    def tearDown(self) -> None:
        """Stop all clients."""
        self.teardown_zookeeper()

    @classmethod
    def tearDownClass(cls) -> None:
        """Remove all state of the cluster, for the next class."""
        _shared_cluster().reset()
