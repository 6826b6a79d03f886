"""Whether the answers that clients were given are those of one ZooKeeper.

:mod:`.facts` reads the entries of a recording; each module of rules looks for one kind of violation among these facts;
:mod:`.checker` asks all of them, and returns the shortest that any has found. Nothing here talks to a server, so
recordings of other ZooKeepers through a proxy are checked in the same way.

Two answers are in an order only through zxids, or because one connection was given both: time is not compared. Every
change takes a zxid, so what is not recorded shows as a gap: a write that was not answered, another client, a session
that expired. Rules that need to know that nobody else has changed a node ask :class:`~.facts.Zxids` whether there is
a gap; the others hold whatever is missing.

Source: ZooKeeper's consistency guarantees, in its Programmer's Guide.
"""
