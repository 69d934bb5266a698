"""The tasks of the conformance tests."""

import os
from datetime import date

from django.db import transaction
from django.dispatch import receiver

from rota import Retry
from rota.errors import Fatal

from .interface import task, task_finished, task_started
from .models import Note


@task
def add(a, b=1):
    return a + b


@task
def note(text, *more, **named):
    Note.objects.create(text=" ".join([text, *more, *(f"{k}={v}" for k, v in named.items())]))


@task
async def anote(text):
    await Note.objects.acreate(text=text)
    return "async"


@task(takes_context=True)
def about_me(context, word):
    result = context.task_result
    return [word, context.attempt, result.status, result.kwargs, result.args]


@task(retry=Retry(max_attempts=3, base=0))
def fail(message):
    raise ValueError(message)


@task
def give_up():
    raise Fatal("never again")


@task(takes_context=True, retry=Retry(max_attempts=2, base=0))
def second_time(context):
    Note.objects.create(text=f"attempt {context.attempt}")
    if context.attempt == 1:
        raise OSError("not yet")
    return context.attempt


@task(takes_context=True, guarantee="exactly_once", retry=Retry(max_attempts=3, base=0))
def exactly(context, text):
    """Write, and fail after it once: only the second time may stay."""
    Note.objects.create(text=text)
    with transaction.atomic():
        Note.objects.create(text=f"{text}, inside")
    if context.attempt == 1:
        raise OSError("after the write")
    return Note.objects.count()


@task(takes_context=True, guarantee="exactly_once", retry=Retry(max_attempts=3, base=0))
def dies_once(context, text):
    """Write, and take the process down once: the write must go with it."""
    Note.objects.create(text=text)
    if context.attempt == 1:
        os._exit(9)
    return "alive"


@task(queue_name="slow", priority=10)
def slow():
    return "slow"


@task
def typed(day: date, names: list[str]):
    return [day.isoformat(), names]


@task
def odd_result():
    return object()


@receiver(task_started)
def note_start(sender, task_result, **_):
    if os.environ.get("NOTE_SIGNALS"):
        Note.objects.create(text=f"started {task_result.task.name}")


@receiver(task_finished)
def note_end(sender, task_result, **_):
    if os.environ.get("NOTE_SIGNALS") and task_result.task.name != "dies_once":
        Note.objects.create(text=f"{task_result.status} {task_result.task.name}")
    if os.environ.get("BAD_RECEIVER"):
        raise RuntimeError("a receiver must not change the outcome")
