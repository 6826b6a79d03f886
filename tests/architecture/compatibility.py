"""Write docs/compatibility.md from the tables in the code: ``make docs``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from zoolet.protocol.operations import OPERATIONS
from zoolet.server.core.compat import V3_8, V3_9, Compat

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

DEVIATIONS = """\
| What | A real server | zoolet | Why |
|---|---|---|---|
| createTTL with a negative ttl and flags that are no TTL mode | stops serving | BadArguments | not a behaviour to keep |
| `/zookeeper/quota/zookeeper_limits` | stops serving | a plain node, no quota | the same |
| a `zookeeper_stats` node that does not parse | stops serving at the next write below it | left alone, counted no more | the same |
| deleteContainer from a client | deletes without a check, 3.9.4 too | Unimplemented, close (3.8: BadArguments) | it is a hole |
| reconfig with `reconfigEnabled`, on a single server | Unimplemented | as the only voter of an ensemble | clients of an ensemble can be tested |
| check outside a transaction, 3.8.0 | no reply, ever, when it holds | Unimplemented, close | a client would wait for ever |
| addWatch on a null path, 3.8.0 | wedges the connection | accepted, never fires, as in 3.9 | not a behaviour to keep |
| a resumed session whose client is ahead of a restarted, empty server | closes, for ever | "expired" | clients would never come back |
| replies to auth | may overtake earlier replies | in order | allowed, and safer |
| getChildren | hash order | order of creation | unordered by contract; here it is repeatable |
| characters beyond U+FFFF in output | CESU-8 | UTF-8 | no known client minds |
| a null path inside a multi, the reply's zxid | 3.8.0 tells the one before | tells the one it took | cannot be told apart by clients |
| a client that does not read its events | memory grows | disconnected at 64 MiB; its session lives on | it would take the server with it |
| a request that would keep all others waiting, or take all memory: see [security](security.md) | done | ThrottledOp, or a close | one client must not stop all |
| a session's password | follows from its id | follows from its id and a secret key; `--compat 3.8`: from the id | the id is no secret |
| a server that stood still for longer than a session timeout | ends every session | reads what came meanwhile first | clients have done nothing wrong |
| allowSaslFailedClients: another SASL exchange on a connection whose login failed | null tokens, for ever | a new exchange with a new nonce | a client may correct itself |
| a container that a multi of 3.9 makes with the flag of an ephemeral node, as a parent | NoChildrenForEphemerals in the same multi | may have children | so it may outside a multi, in both |
| the Stat in the reply to a create2 or setData of a quota's own stats node | before the counts are written | after | nobody looks at it |
| `/zookeeper/quotaX/zookeeper_limits` | a quota on `/X` | a plain node | a slip of ZooKeeper's |
| a text of more than 256 bytes in a quota node | parsed | not a quota | it would be parsed at every write |
| sequence numbers past 2147483647 | NodeExists, for ever | go on with negative numbers | real servers stop; clients know negative numbers |
"""


def differences(compat: Compat) -> list[str]:
    """Return one side of the table of releases."""
    return [str(getattr(compat, one.name)) for one in fields(Compat)]


def page() -> str:
    """Return the text of the page."""
    lines = [
        "# Compatibility",
        "",
        "*Made by `make docs` from the tables in `protocol/operations.py` and `server/core/compat.py`; do not edit.*",
        "",
        f"By default zoolet answers as ZooKeeper {V3_9.release} does; with `--compat 3.8` as Debian's {V3_8.release}. `tests/differential`",
        "compares it with both, byte for byte, in thousands of random steps at every run.",
        "",
        "## Operations",
        "",
        "| Code | Operation | Since | Takes a zxid | zoolet |",
        "|---|---|---|---|---|",
    ]
    for op, facts in OPERATIONS.items():
        lines.append(f"| {op} | {facts.name} | {facts.since} | {'yes' if facts.takes_zxid else ''} | {facts.note} |")
    lines += ["", "## On purpose different", "", DEVIATIONS.rstrip(), ""]
    lines += ["## Where releases differ", "", f"| | {V3_9.release} | {V3_8.release} |", "|---|---|---|"]
    for one, new, old in zip(fields(Compat), differences(V3_9), differences(V3_8), strict=True):
        if one.name != "release":
            lines.append(f"| {one.name.replace('_', ' ')} | {new} | {old} |")
    lines += [
        "",
        "## Not there yet",
        "",
        "Files on disk (snapshots and logs), the admin HTTP server, Prometheus metrics, ensembles, Kerberos, x509.",
        "Throttles: the connection throttle's tokens are honoured, its random drop and the request throttle are not: requests",
        "are answered as they come, and a client that does not read is not read from.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
