"""Benchmarks. Everything is a ratio against a raw limit measured in the same run."""
