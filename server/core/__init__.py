"""The state machine: bytes and the time go in, bytes come out. No socket, clock, thread or chance of its own."""
