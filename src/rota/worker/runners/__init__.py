"""Runners of handlers: on the event loop, in child processes, and in threads."""
