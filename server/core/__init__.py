"""The state machine: bytes and the time go in, bytes come out. It has no socket, clock, thread or randomness."""
