"""The only part of the server that waits: sockets, timers and signals."""
