"""Rota inside other projects: Django, Flask, ASGI applications, code that was written for Celery,
and what watches over applications: Sentry, structlog, OpenTelemetry.

Each module needs the package that it is for, which is an extra (`rota[django]`). None is imported by
the rest of Rota.
"""
