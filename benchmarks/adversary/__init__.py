"""The attacks of ``attacks.py``, and what they are made with.

- ``target``: the server under attack, in a process of its own.
- ``neighbour``: a well-behaved client in another process, which measures what the attack does to it.
- ``client``, ``frames``, ``floods``: a hostile client, the frames that it sends, and floods of them.
- ``case``: a row of the table of attacks, and the decorator that adds one.
- ``cases``: the attacks, by subject.
"""
