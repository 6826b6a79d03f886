"""Copying a tree from a server to a file, from a file to a server, or from one server to another."""
