"""Views that ATOMIC_REQUESTS makes one transaction each."""

from django.http import HttpResponse
from django.urls import path

from . import tasks
from .models import Note


def works(request):
    Note.objects.create(text="mine")
    return HttpResponse(tasks.note.enqueue("works").id)


def fails(request):
    works(request)
    raise RuntimeError("after the enqueue")


urlpatterns = [path("works", works), path("fails", fails)]
