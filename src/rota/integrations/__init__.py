"""Rota inside other projects: Django, Flask, ASGI applications, and code that was written for Celery.

Each module needs the package that it is for, which is an extra (`rota[django]`). None is imported by
the rest of Rota.
"""
