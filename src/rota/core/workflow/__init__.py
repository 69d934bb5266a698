"""Workflows as data and decisions: definitions, graphs, conditions, references to results."""
