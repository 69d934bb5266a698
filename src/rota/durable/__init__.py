"""Durable functions: code that survives any crash. See docs/guide/durable-functions.md."""
