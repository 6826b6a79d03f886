"""Floods: pipelined requests on one connection, and the permitted reactions of the server."""

from __future__ import annotations

from adversary.case import Report
from adversary.client import Outcome
from adversary.frames import creates
from adversary.target import Target


def populate(target: Target, paths: list[str], data: bytes = b"") -> None:
    """Create nodes before an attack.

    Raises:
        RuntimeError: A node could not be created.
    """
    with target.peer() as peer:
        outcome = peer.flood(creates(paths, data), len(paths), seconds=60)
        if outcome.errors or outcome.replies != len(paths):
            raise RuntimeError(f"the tree could not be built: {outcome}")


def flood(target: Target, report: Report, data: bytes, replies: int, *, may_close: bool = False) -> Outcome:
    """Attack with pipelined requests on one connection. Check the outcome by :func:`judge_flood`, and return it."""
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(data, replies)
    report.got = str(outcome)
    judge_flood(report, outcome, may_close=may_close)
    return outcome


def judge_flood(report: Report, outcome: Outcome, *, may_close: bool = False) -> None:
    """Report a failure if the server does not answer a flood, or closes the connection although *may_close* is false.

    In most floods every single request is legal and cheap to write, so closing the connection would break real clients.
    """
    if not may_close:
        report.require(not outcome.closed, "the server closed a connection whose requests are legal")
    report.require(outcome.closed or outcome.replies, "no request was answered in 30 s")
