"""The attacks of ``attacks.py``, and their tools.

- ``target``: the server under attack, in a separate process.
- ``neighbour``: a well-behaved client in a separate process, which measures the effect of the attack.
- ``client``, ``frames``, ``floods``: a hostile client, the frames that it sends, and floods of frames.
- ``case``: a row of the table of attacks, and the decorator that adds one.
- ``cases``: the attacks, by subject.
"""
