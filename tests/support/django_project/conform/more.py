"""Tasks in a module that OPTIONS names."""

from conform.interface import task


@task
def far_away():
    return "found"
