"""Identify the sender of a request: tokens, sessions, and the ways to log in."""
