"""The settings of the sample shop: Rota's backend, in the database of the orders."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

import django

_url = urlsplit(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))

SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-the-sample")
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
TIME_ZONE = "Europe/Paris"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.console.EmailBackend"}}
else:
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(_url.path[1:]),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": parse_qs(_url.query).get("host", [_url.hostname or ""])[0],
        "PORT": parse_qs(_url.query).get("port", [str(_url.port or "")])[0],
    }
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
    "rota.integrations.django",
    "shop",
]
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

TASKS = {
    "default": {
        "BACKEND": "rota.integrations.django.RotaBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"defaults": {"timeout": 60}, "processes": 2, "poll": 0.5},
    }
}
