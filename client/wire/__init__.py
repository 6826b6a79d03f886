"""The client's side of the wire protocol, without sockets, clocks or tasks."""
