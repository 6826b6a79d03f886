"""The console: a page that shows what is in a running server, and who holds and waits for what."""
