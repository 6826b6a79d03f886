"""Numbers for faults, snapshots and recordings, which are objects in Python, and the commands that use the numbers."""

from __future__ import annotations

from typing import Any

from ..endpoint import Endpoint
from ..frames.faults import Fault
from ..recording.recording import Recording
from ..signatures import Who


class NumberedObjects:
    """The objects that commands have returned, by number.

    Args:
        endpoint: The server or proxy of the faults and recordings.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._objects: dict[int, object] = {}
        self._last_number = 0

    def number_of(self, thing: object) -> int:
        """Return the number of an object. An object without a number gets the next number."""
        for number, other in self._objects.items():
            if other is thing:
                return number
        self._last_number += 1
        self._objects[self._last_number] = thing
        return self._last_number

    def find(self, number: int, kind: type, name: str) -> Any:
        """Return the object with a number.

        Raises:
            LookupError: No object of this class has this number. The message calls it *name*.
        """
        thing = self._objects.get(number)
        if not isinstance(thing, kind):
            raise LookupError(f"no {name} with number {number}")
        return thing

    def _forget(self, thing: object) -> None:
        del self._objects[self.number_of(thing)]

    def _status(self, fault: Fault) -> dict[str, Any]:
        too_long = {"held_too_long": True} if fault.was_too_long else {}
        return {"hits": fault.hits, "seen": fault.seen, **too_long}

    # --- commands ---

    def fault_status(self, fault: Fault) -> dict[str, Any]:
        """Return how many times a fault was applied, and how many times it matched."""
        return self._status(fault)

    def release(self, fault: Fault) -> None:
        """Execute the requests that a fault holds, and stop holding requests."""
        fault.release()

    def end_fault(self, fault: Fault) -> dict[str, Any]:
        """End a fault, and return how many times it was applied and matched."""
        self._forget(fault)
        fault.end()
        return self._status(fault)

    def faults(self) -> list[dict[str, Any]]:
        """Return the active faults, including faults of other programs, and how many times each was applied."""
        shown = []
        for fault in self._endpoint.faults():
            holds = (fault.action.holds or fault.action.events) and not fault.action.released
            shown.append({"fault": self.number_of(fault), "text": repr(fault), "holds": holds, **self._status(fault)})
        return shown

    def start_recording(self, who: Who = "all") -> Recording:
        """Start to record the requests of a client, or of all clients."""
        return self._endpoint.recording(who).__enter__()

    def stop_recording(self, recording: Recording) -> list[Any]:
        """End a recording, and return its requests."""
        recording.__exit__()
        self._forget(recording)
        return list(recording)
