"""The observer of ``zoolet serve --observe``: its options, and the loop that follows the leader."""

from __future__ import annotations

import asyncio

from ..server.config import ConfigError
from ..server.learner.errors import ObserverRefusedError
from ..server.net.leader_link import LeaderLink
from ..server.observer import ObservedEnsemble


def parse_ensemble(addresses: str, sid: int | None, read_only: bool) -> ObservedEnsemble:
    """Return the ensemble that the options ``--observe`` and ``--sid`` describe.

    Raises:
        ConfigError: An option is missing, or an address is not valid.
    """
    if not read_only:
        raise ConfigError("--observe requires --observe-read-only: forwarding writes to the ensemble is not supported")
    try:
        return ObservedEnsemble.parse(addresses, sid)
    except ValueError as error:
        raise ConfigError(f"--{error}" if str(error).startswith("sid ") else f"--observe: {error}") from None


async def follow(link: LeaderLink, stop: asyncio.Event) -> str:
    """Follow the leader of an ensemble until *stop* is set.

    Returns:
        An empty text, or the reason in one line if the ensemble refuses the observer.

    Raises:
        Exception: The link to the leader failed unexpectedly.
    """
    stopped = asyncio.create_task(stop.wait())
    following = asyncio.create_task(link.run())
    await asyncio.wait((stopped, following), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    following.cancel()
    [result] = await asyncio.gather(following, return_exceptions=True)
    if isinstance(result, ObserverRefusedError):
        return f"--observe: {result}"
    if isinstance(result, Exception):
        raise result
    return ""
