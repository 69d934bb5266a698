"""A mail room: ten tasks and five periodic ones."""
