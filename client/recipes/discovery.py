"""Service discovery: registration of service instances, and the choice of an instance for each request."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final

from .. import serializers
from ..aio.operations import BaseClient
from ..wire.arguments import checked_choice, checked_count, checked_node_name
from ._base import STOP_TIMEOUT, SupervisedRecipe
from .children_cache import ChildrenCache
from .persistent_ephemeral import PersistentEphemeral


@dataclass(frozen=True)
class Instance:
    """An instance of a service, with the fields of Curator's ServiceInstance.

    Args:
        name: Name of the service.
        id: Id of the instance, unique among all instances.
        address: Host name or IP address of the instance.
        port: Port of the instance; None if it has none.
        sslPort: Port of the instance for TLS; None if it has none.
        payload: Any JSON value; for ``least_loaded`` a dict with ``load``.
        registrationTimeUTC: Time of the registration, in milliseconds since the epoch.
        serviceType: ``DYNAMIC`` for an instance that is removed with its session.
        uriSpec: Template of the URI of the instance, as in Curator's UriSpec; None if it has none.
        enabled: Whether the instance accepts requests.
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
        """Return the instance that a node's fields describe. Unknown fields are ignored."""
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


Strategy = Callable[[list[Instance]], Instance]
"""Function that picks one of the instances of a service; the list is not empty."""
STRATEGIES: Final = ("round_robin", "random", "least_loaded", "sticky")


class Discovery(SupervisedRecipe):
    """A registry of service instances that picks an instance for each request::

        async with Discovery(zk, "/services") as discovery:
            await discovery.register(Instance("web", "web-1", "10.0.0.1", 8080))
            instance = await discovery.pick("web")

    Znodes: ``PATH/<service>/<instance id>``, ephemeral, with JSON as data, as by Curator's ServiceDiscovery with its
    JsonInstanceSerializer.

    Guarantees: an instance is registered again in every session, until ``unregister`` or the end of the block, and
    ``instances`` eventually reflects all registrations. If a registration or a cache fails permanently, the block is
    cancelled and raises the reason.

    Limits: an instance that dies is listed until its session ends. Load is reported by the instances themselves.

    Args:
        client: Client whose session owns the registrations.
        path: Path of the services.
        stop_timeout: As for PersistentEphemeral, for all registrations together.
    """

    _serializer = serializers.json

    def __init__(self, client: BaseClient[Any], path: str, *, stop_timeout: float = STOP_TIMEOUT) -> None:
        super().__init__(client, path)
        self._stop_timeout = checked_count("stop_timeout", stop_timeout, 0.0)
        self._nodes: dict[str, PersistentEphemeral[Any]] = {}
        self._caches: dict[str, ChildrenCache[Any]] = {}
        self._turns: dict[str, count[int]] = {}
        self._sticky_ids: dict[str, str] = {}

    def _instance_path(self, instance: Instance) -> str:
        return self._child_path(checked_node_name(instance.name), checked_node_name(instance.id))

    async def register(self, instance: Instance) -> None:
        """Register an instance until :meth:`unregister` or the end of the block. Call it again to change the fields.

        Raises:
            ValueError: The name or the id cannot be the name of a node.
            RuntimeError: The discovery was not entered.
        """
        self._check_entered()
        path, fields = self._instance_path(instance), asdict(instance)
        if path in self._nodes:
            return await self._nodes[path].set(fields)
        node = self._nodes[path] = PersistentEphemeral(self._client, path, fields, stop_timeout=self._stop_timeout)
        try:
            await node.start(self._block)
        except BaseException:  # a cancellation also has to clean up
            if self._nodes.get(path) is node:
                del self._nodes[path]
            raise

    async def unregister(self, instance: Instance) -> None:
        """Remove the registration of an instance."""
        node = self._nodes.pop(self._instance_path(instance), None)
        if node is not None:
            await node.stop()

    async def instances(self, service: str) -> list[Instance]:
        """Return the enabled instances of a service, sorted by id.

        Raises:
            RuntimeError: The discovery was not entered.
        """
        self._check_entered()
        if service not in self._caches:
            cache = ChildrenCache(self._client, self._child_path(service))
            await cache.start(self._block)
            if self._caches.setdefault(service, cache) is not cache:  # another call was faster
                await cache.stop()
        values = [value for _, value in sorted(self._caches[service].values.items()) if isinstance(value, dict)]
        instances = [Instance.read(fields) for fields in values if {"name", "id"} <= fields.keys()]
        return [instance for instance in instances if instance.enabled]

    async def pick(self, service: str, strategy: str | Strategy = "round_robin", *, key: str = "") -> Instance:
        """Return one instance of a service.

        Args:
            service: Name of the service.
            strategy: ``round_robin`` returns each instance in turn, and ``random`` any instance. ``least_loaded``
                returns the one with the smallest ``load`` in its payload. ``sticky`` returns the same one while it is
                registered; with a *key*, the key determines the instance, and most keys keep theirs when instances
                are added or removed. You can also pass your own function.
            key: Key for ``sticky``.

        Raises:
            LookupError: No enabled instance of the service is registered.
            ValueError: The strategy is unknown.
            RuntimeError: The discovery was not entered.
        """
        if not callable(strategy):
            checked_choice("strategy", strategy, STRATEGIES)
        instances = await self.instances(service)
        if not instances:
            raise LookupError(f"no instance of {service!r} is registered at {self._path}")
        if callable(strategy):
            return strategy(instances)
        if strategy == "random":
            return self._client._core.rng.choice(instances)
        if strategy == "least_loaded":
            return min(instances, key=_instance_load)
        if strategy == "round_robin":
            return instances[next(self._turns.setdefault(service, count())) % len(instances)]
        if key:  # rendezvous hashing: the instance with the highest hash wins
            return max(instances, key=lambda instance: hashlib.sha256(f"{key} {instance.id}".encode()).digest())
        by_id = {instance.id: instance for instance in instances}
        if self._sticky_ids.get(service) not in by_id:
            self._sticky_ids[service] = self._client._core.rng.choice(instances).id
        return by_id[self._sticky_ids[service]]

    async def stop(self) -> None:
        """Remove all registrations, and stop the caches."""
        await super().stop()
        kept: list[PersistentEphemeral[Any] | ChildrenCache[Any]] = [*self._nodes.values(), *self._caches.values()]
        self._nodes, self._caches = {}, {}
        if kept:  # separate tasks, because a cancellation of stop() must not interrupt any of them
            await asyncio.wait([self._client._core.spawn(recipe.stop()) for recipe in kept])


def _instance_load(instance: Instance) -> float:
    load = instance.payload.get("load") if isinstance(instance.payload, dict) else None
    return float(load) if isinstance(load, int | float) else float("inf")
