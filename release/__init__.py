"""Builds releases: `make release`."""
