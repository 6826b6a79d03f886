"""ZooKeeper's files: snapshots and transaction logs, and the recovery of a server's state from them."""
