"""Schedulers: fire schedules, release jobs that are due, recover the jobs of dead nodes, upkeep."""
