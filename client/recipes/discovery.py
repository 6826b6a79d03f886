"""Who offers a service, and which of them to ask."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from zoolet.client import serializers
from zoolet.client.recipes.children_cache import ChildrenCache
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths


@dataclass(frozen=True)
class Instance:
    """One who offers a service; the fields are those of Curator's ServiceInstance.

    Args:
        name: The service.
        id: Unique among all instances.
        address: Where it listens.
        port: Its port.
        sslPort: Its port for TLS.
        payload: What else there is to know; for ``least_loaded`` a dict with ``load``.
        registrationTimeUTC: When it registered, in milliseconds since the epoch.
        serviceType: ``DYNAMIC`` for one that goes with its session.
        uriSpec: How its address is built.
        enabled: Whether it wants to be asked.
    """

    name: str
    id: str
    address: str = ""
    port: int | None = None
    sslPort: int | None = None
    payload: Any = None
    registrationTimeUTC: int = 0
    serviceType: str = "DYNAMIC"
    uriSpec: Any = None
    enabled: bool = True

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Instance:
        """Make one of what its node holds; fields that are not known are passed over."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in said.items() if name in known})


Choice = Callable[[list[Instance]], Instance]
"""Picks one of those that offer a service; there is at least one."""
CHOICES: Final = ("round_robin", "random", "least_loaded", "sticky")


class Discovery:
    """Register services, and find them::

        async with Discovery(zk, "/services") as discovery:
            await discovery.register(Instance("web", "web-1", "10.0.0.1", 8080))
            instance = await discovery.pick("web")

    Znodes: ``PATH/<service>/<instance id>``, ephemeral, whose data is JSON, as Curator's ServiceDiscovery with its
    JsonInstanceSerializer.

    Guarantees: what is registered is registered again in every session until the block ends or ``unregister``. What
    ``instances`` gives comes to be what is registered.

    Limits: who has died is given until its session ends. Load is what instances say of themselves.

    Args:
        client: Whose session it is in.
        path: Where the services are.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        self._client = client.with_serializer(serializers.json)
        self._path = path
        self._stack = AsyncExitStack()
        self._offered: dict[str, PersistentEphemeral] = {}
        self._caches: dict[str, ChildrenCache] = {}
        self._turns: dict[str, count[int]] = {}
        self._stuck: dict[str, str] = {}

    async def register(self, instance: Instance) -> None:
        """Offer a service, until :meth:`unregister` or the end of the block; again, to change what is said of it."""
        path = paths.join(paths.join(self._path, instance.name), instance.id)
        offered = self._offered.get(path)
        if offered is not None:
            await offered.set(asdict(instance))
            return
        if "/" in instance.name or "/" in instance.id or not instance.name or not instance.id:
            raise ValueError(f"{instance!r}: name and id are names of nodes, and must have no slash")
        offered = self._offered[path] = PersistentEphemeral(self._client, path, asdict(instance))
        try:
            await offered.__aenter__()
        except BaseException:
            if self._offered.get(path) is offered:
                del self._offered[path]
            raise

    async def unregister(self, instance: Instance) -> None:
        """Offer it no more."""
        path = paths.join(paths.join(self._path, instance.name), instance.id)
        offered = self._offered.pop(path, None)
        if offered is not None:
            await offered.__aexit__(None, None, None)

    async def instances(self, service: str) -> list[Instance]:
        """Return who offers a service, in order of their ids."""
        cache = self._caches.get(service)
        if cache is None:
            cache = await self._stack.enter_async_context(ChildrenCache(self._client, paths.join(self._path, service)))
            self._caches[service] = cache
        said = [one for _, one in sorted(cache.values.items()) if isinstance(one, dict)]
        found = [Instance.read(one) for one in said if "name" in one and "id" in one]
        return [instance for instance in found if instance.enabled]

    async def pick(self, service: str, choice: str | Choice = "round_robin", *, key: str = "") -> Instance:
        """Return one that offers a service.

        Args:
            service: Which service.
            choice: ``round_robin``: each in turn. ``random``. ``least_loaded``: the smallest ``load`` in the payload.
                ``sticky``: the same again for as long as it is there; with a *key*, one that follows from the key, and
                changes for few keys only when instances come and go. Or a function of your own.
            key: For ``sticky``.

        Raises:
            LookupError: Nobody offers it.
            ValueError: The choice is unknown.
        """
        if not callable(choice) and choice not in CHOICES:
            raise ValueError(f"choice {choice!r} is unknown; one of {', '.join(CHOICES)}")
        found = await self.instances(service)
        if not found:
            raise LookupError(f"nobody offers {service!r} at {self._path}")
        if callable(choice):
            return choice(found)
        if choice == "random":
            return self._client.rng.choice(found)
        if choice == "least_loaded":
            return min(found, key=_load)
        if choice == "sticky":
            return self._sticky(service, found, key)
        return found[next(self._turns.setdefault(service, count())) % len(found)]

    def _sticky(self, service: str, found: list[Instance], key: str) -> Instance:
        if key:  # the highest of all hashes with the key (rendezvous hashing)
            return max(found, key=lambda one: hashlib.sha256(f"{key} {one.id}".encode()).digest())
        for instance in found:
            if instance.id == self._stuck.get(service):
                return instance
        chosen = self._client.rng.choice(found)
        self._stuck[service] = chosen.id
        return chosen

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Each by itself in the background, so that a cancellation here keeps none from ending.
        offered, self._offered = list(self._offered.values()), {}
        ends = [self._client.spawn(one.__aexit__(None, None, None)) for one in offered]
        ends.append(self._client.spawn(self._stack.aclose()))
        await asyncio.wait(ends)


def _load(instance: Instance) -> float:
    load = instance.payload.get("load") if isinstance(instance.payload, dict) else None
    return float(load) if isinstance(load, int | float) else float("inf")
