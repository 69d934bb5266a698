"""Relays: they answer the calls of workers that reach a broker and no database."""
