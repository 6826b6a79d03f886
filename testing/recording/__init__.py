"""Recordings of requests, and their replay as a server or as a client."""
