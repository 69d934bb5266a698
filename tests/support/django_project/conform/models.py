from django.db import models


class Note(models.Model):
    """Something that a task or a receiver wrote down."""

    text = models.TextField()
