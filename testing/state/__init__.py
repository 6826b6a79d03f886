"""The state of a server: how tests read it, change it, and wait for it."""
