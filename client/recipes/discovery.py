"""Service discovery: the instances that offer a service, and the choice of one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import SupervisedRecipe
from zoolet.client.recipes.children_cache import ChildrenCache
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.wire.arguments import checked_choice, checked_node_name


@dataclass(frozen=True)
class Instance:
    """An instance of a service; the fields are those of Curator's ServiceInstance.

    Args:
        name: The service.
        id: Unique among all instances.
        payload: Any JSON value; for ``least_loaded`` a dict with ``load``.
        registrationTimeUTC: When it registered, in milliseconds since the epoch.
        serviceType: ``DYNAMIC`` for one that goes with its session.
        enabled: Whether it accepts requests.
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
    def read(cls, fields: Mapping[str, Any]) -> Instance:
        """Return the instance that a node holds; unknown fields are ignored."""
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


Strategy = Callable[[list[Instance]], Instance]
"""Picks one of the instances of a service; there is at least one."""
STRATEGIES: Final = ("round_robin", "random", "least_loaded", "sticky")


class Discovery(SupervisedRecipe):
    """Register services, and find them::

        async with Discovery(zk, "/services") as discovery:
            await discovery.register(Instance("web", "web-1", "10.0.0.1", 8080))
            instance = await discovery.pick("web")

    Znodes: ``PATH/<service>/<instance id>``, ephemeral, whose data is JSON, as Curator's ServiceDiscovery with its
    JsonInstanceSerializer.

    Guarantees: what is registered is registered again in every session, until the block ends or ``unregister``, and
    ``instances`` comes to be that. If either cannot be kept up, the block is cancelled and raises the reason.

    Limits: an instance that dies is listed until its session ends. Load is what instances report.
    """

    _serializer = serializers.json

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, path)
        self._nodes: dict[str, PersistentEphemeral] = {}
        self._caches: dict[str, ChildrenCache] = {}
        self._turns: dict[str, count[int]] = {}
        self._sticky_ids: dict[str, str] = {}

    def _path_of(self, instance: Instance) -> str:
        return self._at(checked_node_name(instance.name), checked_node_name(instance.id))

    async def register(self, instance: Instance) -> None:
        """Offer a service until :meth:`unregister` or the end of the block; once more, to change the fields.

        Raises:
            ValueError: The name or the id cannot be a node's name.
            RuntimeError: The discovery was not entered.
        """
        self._check_entered()
        path, fields = self._path_of(instance), asdict(instance)
        if path in self._nodes:
            return await self._nodes[path].set(fields)
        node = self._nodes[path] = PersistentEphemeral(self._client, path, fields)
        try:
            await node.start(self._block)
        except BaseException:  # cancelled, too
            if self._nodes.get(path) is node:
                del self._nodes[path]
            raise

    async def unregister(self, instance: Instance) -> None:
        """Offer it no longer."""
        node = self._nodes.pop(self._path_of(instance), None)
        if node is not None:
            await node.stop()

    async def instances(self, service: str) -> list[Instance]:
        """Return the instances that offer a service, in order of their ids.

        Raises:
            RuntimeError: The discovery was not entered.
        """
        self._check_entered()
        if service not in self._caches:
            cache = ChildrenCache(self._client, self._at(service))
            await cache.start(self._block)
            if self._caches.setdefault(service, cache) is not cache:  # another call was faster
                await cache.stop()
        values = [value for _, value in sorted(self._caches[service].values.items()) if isinstance(value, dict)]
        instances = [Instance.read(fields) for fields in values if {"name", "id"} <= fields.keys()]
        return [instance for instance in instances if instance.enabled]

    async def pick(self, service: str, strategy: str | Strategy = "round_robin", *, key: str = "") -> Instance:
        """Return one that offers a service.

        Args:
            service: Which service.
            strategy: ``round_robin``: each in turn. ``random``. ``least_loaded``: the smallest ``load`` in the payload.
                ``sticky``: the same for as long as it is registered; with a *key*, one that follows from the key, and
                changes for few keys only when instances come and go. Or a function of your own.
            key: For ``sticky``.

        Raises:
            LookupError: There is none.
            ValueError: The strategy is unknown.
        """
        if not callable(strategy):
            checked_choice("strategy", strategy, STRATEGIES)
        instances = await self.instances(service)
        if not instances:
            raise LookupError(f"nobody offers {service!r} at {self._path}")
        if callable(strategy):
            return strategy(instances)
        if strategy == "random":
            return self._client.rng.choice(instances)
        if strategy == "least_loaded":
            return min(instances, key=_load)
        if strategy == "round_robin":
            return instances[next(self._turns.setdefault(service, count())) % len(instances)]
        if key:  # the highest of all hashes with the key (rendezvous hashing)
            return max(instances, key=lambda instance: hashlib.sha256(f"{key} {instance.id}".encode()).digest())
        by_id = {instance.id: instance for instance in instances}
        if self._sticky_ids.get(service) not in by_id:
            self._sticky_ids[service] = self._client.rng.choice(instances).id
        return by_id[self._sticky_ids[service]]

    async def stop(self) -> None:
        """End all registrations and caches."""
        await super().stop()
        kept: list[PersistentEphemeral | ChildrenCache] = [*self._nodes.values(), *self._caches.values()]
        self._nodes, self._caches = {}, {}
        if kept:  # each in a task of its own, so that a cancellation here keeps none from ending
            await asyncio.wait([self._client.spawn(recipe.stop()) for recipe in kept])


def _load(instance: Instance) -> float:
    load = instance.payload.get("load") if isinstance(instance.payload, dict) else None
    return float(load) if isinstance(load, int | float) else float("inf")
