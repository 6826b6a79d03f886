"""The ``mntr`` metrics that only members of an ensemble have."""

from __future__ import annotations

from typing import Final

from .ensemble import Ensemble
from .replica import MemberStatus, Replica

MNTR_STATES: Final = {
    MemberStatus.LEADING: "leading",
    MemberStatus.FOLLOWING: "following",
    MemberStatus.OBSERVING: "observing",
}
"""The names that ``mntr`` uses for the states of serving members."""


def ensemble_metrics(ensemble: Ensemble, replica: Replica) -> dict[str, str | int]:
    """Return the ``mntr`` metrics of a member's role in the ensemble.

    Source: QuorumZooKeeperServer.dumpMonitorValues, Leader.registerMetrics, QuorumPeer.start.
    """
    verb = MNTR_STATES.get(replica.status)
    shown: dict[str, str | int] = {} if verb is None else {"peer_state": f"{verb} - broadcast"}
    if replica is ensemble.leader:
        linked = [each.status for each in ensemble.linked]
        followers, observers = linked.count(MemberStatus.FOLLOWING), linked.count(MemberStatus.OBSERVING)
        shown |= {"synced_followers": followers, "synced_non_voting_followers": 0, "synced_observers": observers}
        shown |= {"pending_syncs": len(ensemble.syncs), "learners": followers + observers}
    return shown | {"quorum_size": ensemble.voting.count}
