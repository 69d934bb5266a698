"""A task that workers don't find."""

from .interface import task


@task
def lost():
    return "nobody runs this"
