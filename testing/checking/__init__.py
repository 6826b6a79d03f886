"""The consistency checker: whether the recorded answers of servers are possible for a single ZooKeeper.

:mod:`.facts` reads the entries of a recording. Each module of rules searches these facts for one kind of violation.
:mod:`.checker` runs all rules and returns the shortest violation. No rule talks to a server, so recordings of any
ZooKeeper, made through a proxy, can be checked.

Answers are ordered only by zxid, or by their order on one connection. Times are not compared. Every change gets a zxid,
so unrecorded changes show as gaps: unanswered writes, other clients, expired sessions. Rules that require that no other
client has changed a node check for gaps with :class:`~.facts.Zxids`. All other rules hold despite gaps.

Source: ZooKeeper's consistency guarantees, in its Programmer's Guide.
"""
