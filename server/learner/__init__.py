"""An observer of an ensemble, without I/O: a learner that follows the leader, and the replica that it keeps."""
