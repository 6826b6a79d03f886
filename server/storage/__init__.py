"""Snapshots and transaction logs in ZooKeeper's formats, and the recovery of a server's state from them."""
