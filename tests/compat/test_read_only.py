"""kazoo with a daemon that is switched to read-only mode and back."""

from __future__ import annotations

import signal
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.protocol.states import KeeperState
from support.daemon import DaemonProcess
from support.waiting import DEADLINE_S


def state_event(client: KazooClient, state: KeeperState) -> threading.Event:
    """Return an event that is set as soon as the client's connection is in a state."""
    reached = threading.Event()

    @client.add_listener
    def listen(_: object) -> None:
        if client.client_state == state:
            reached.set()

    return reached


@pytest.mark.slow
def test_kazoo_can_write_after_read_only_mode_ends() -> None:
    with DaemonProcess("-Dzookeeper.4lw.commands.whitelist=*") as daemon:
        client = KazooClient(daemon.hosts, read_only=True, timeout=5)
        client.start()
        try:
            client.create("/a", b"1")
            read_only = state_event(client, KeeperState.CONNECTED_RO)

            daemon.process.send_signal(signal.SIGUSR1)
            assert read_only.wait(DEADLINE_S)
            assert client.get("/a")[0] == b"1"
            with pytest.raises(NotReadOnlyCallError):
                client.set("/a", b"2")

            writable = state_event(client, KeeperState.CONNECTED)
            daemon.process.send_signal(signal.SIGUSR2)
            assert writable.wait(DEADLINE_S)
            assert client.set("/a", b"2").version == 1
        finally:
            client.stop()
            client.close()
