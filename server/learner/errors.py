"""The reasons why an observer cannot follow a leader."""

from __future__ import annotations


class LearnerError(Exception):
    """The connection to a leader cannot be continued. Another connection, or another leader, may work."""


class ReplicaError(LearnerError):
    """The replica differs from the leader's tree, or cannot be kept equal to it. Only a new snapshot helps."""


class ObserverRefusedError(LearnerError):
    """The observer must not take part in this ensemble, or cannot understand it. Another attempt would not help."""
