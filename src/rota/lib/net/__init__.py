"""Requests to addresses that others chose: where they may go (`guard`), how they are made (`post`)."""
