"""The shell: ZooKeeper's own commands, and more, on the bundled client; ``zoolet shell``.

A line goes through it in one direction: :mod:`.words`, :mod:`.command` (the table), :mod:`.flags`, a function of
:mod:`.commands`, :mod:`.texts`, :mod:`.output`.
"""
