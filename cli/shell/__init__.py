"""``zoolet shell``: the commands of zkCli and more, on zoolet's client.

A line passes through these modules in order: :mod:`.words`, :mod:`.command` (the table), :mod:`.flags`, a function in
:mod:`.commands`, :mod:`.texts`, :mod:`.output`.
"""
