"""Two databases with a backend each, and one backend that runs tasks at once."""

import os
from urllib.parse import parse_qs, urlsplit

import django

_url = urlsplit(os.environ["DATABASE_URL"])
_where = {
    "ENGINE": "django.db.backends.postgresql",
    "USER": _url.username or "",
    "PASSWORD": _url.password or "",
    "HOST": parse_qs(_url.query).get("host", [_url.hostname or ""])[0],
    "PORT": parse_qs(_url.query).get("port", [str(_url.port or "")])[0],
}

SECRET_KEY = "of no use"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "conform.urls"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["*"]
DATABASES = {
    "default": {**_where, "NAME": os.environ.get("DATABASE_NAME", "conform")},
    "other": {**_where, "NAME": os.environ.get("DATABASE_NAME", "conform") + "_other"},
}
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
    "rota.integrations.django", "conform",
]  # fmt: skip
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_ROTA = "rota.integrations.django.RotaBackend"
TASKS = {
    "default": {
        "BACKEND": _ROTA,
        "QUEUES": ["default", "slow"],
        "OPTIONS": {"modules": ["conform.more"], "poll": 0.3, "processes": 2, "heartbeat": 1.0},
    },
    "reports": {"BACKEND": _ROTA, "OPTIONS": {"database": "other", "schema": "queue"}},
    "now": {"BACKEND": "rota.integrations.django.ImmediateBackend"},
}
