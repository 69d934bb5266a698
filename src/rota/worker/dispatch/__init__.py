"""A worker that takes its jobs from a broker, and has no way to the database."""
