"""Takes secrets out of what is about to be logged: those we know, and what looks like one.

Known are the passwords of the settings. What looks like one: a password in a URL, an API token of ours,
an Authorization header. It is applied to the finished line, tracebacks included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from rota.config import Settings

HIDDEN = "***"
_SHORTEST = 4  # a shorter word would be found everywhere

_PATTERNS = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]*):[^\s'\"]*@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(?i)([?&](?:password|sslpassword|token|secret)=)[^&\s'\"]+"), rf"\1{HIDDEN}"),
    (re.compile(r"\brota_([a-z2-7]{8})_[A-Za-z0-9_-]{20,}"), rf"rota_\1_{HIDDEN}"),
    (re.compile(r"(?i)(authorization\W{1,4}(?:bearer|basic)\s+)[^\s'\",]+"), rf"\1{HIDDEN}"),
)


def secrets_of(settings: Settings) -> set[str]:
    """What in these settings nobody should read in a log."""
    found: set[str] = set()
    if settings.oidc_client_secret:
        found.add(settings.oidc_client_secret)
    for key in (settings.encryption_keys or "").split(","):
        found.add(key.partition(":")[2].strip())
    try:
        password = urlsplit(settings.database_url or "").password
    except ValueError:  # it can't be read as a URL: all of it may be a secret
        password = settings.database_url
    if password:
        found.update((password, unquote(password)))
    return {secret for secret in found if len(secret) >= _SHORTEST}


class Redactor:
    def __init__(self) -> None:
        self._secrets: list[str] = []

    def learn(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be part of another.
        self._secrets = sorted({*self._secrets, *secrets}, key=len, reverse=True)

    def clean(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text
