"""The wire protocol of the client: pure, without sockets, clocks and tasks."""
