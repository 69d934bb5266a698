"""Schedules as files: YAML that is applied, crontabs that are imported."""
