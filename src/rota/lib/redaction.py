"""Takes secrets out of what is about to be logged, where a secret stands: in a URL, behind a key such as
`password=`, in an Authorization header, and API tokens of ours.

A password of the settings isn't looked for as a word. It may be one (`rota`), and then replacing it
would mangle every line and tell everybody what it is. Only what can't be a word, such as an encryption
key, is taken out wherever it stands. Each pass is linear in the text. It is applied to the finished
line, tracebacks included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from rota.config import Settings

HIDDEN = "***"
_LEAST_UNMISTAKABLE = 20  # characters

_ADDRESS = re.compile(r"://[^\s'\"]++")
_USER = re.compile(r"[^/:@]*:")
_KEY = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|(?:api|access|private)[_-]?key|encryption_keys?"
    r"|(?:access|api|auth|refresh|id)[_-]token)"
)
_PATTERNS = (
    # password=x, PGPASSWORD='x y', "client_secret": "x". A colon alone is prose: password: too short.
    (
        re.compile(
            rf"(?i)({_KEY}['\"]?\s{{0,3}}(?:=|:(?=\s{{0,3}}['\"]))\s{{0,3}})"
            r"(?:'[^'\n]*+'?|\"[^\"\n]*+\"?|[^\s&,;'\"]++)"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)([?&]token=)[^&\s'\"]++"), rf"\1{HIDDEN}"),
    (re.compile(r"\brota_([a-z2-7]{8})_[A-Za-z0-9_-]{20,}+"), rf"rota_\1_{HIDDEN}"),
    (re.compile(r"(?i)(authorization\W{1,4}(?:bearer|basic)\s++)[^\s'\",]++"), rf"\1{HIDDEN}"),
)


def secrets_of(settings: Settings) -> set[str]:
    """Return the values in these settings that must not be in a log."""
    found: set[str] = set()
    if settings.oidc_client_secret:
        found.add(settings.oidc_client_secret)
    if isinstance(settings.database_password, str):
        found.add(settings.database_password)
    for key in (settings.encryption_keys or "").split(","):
        found.add(key.partition(":")[2].strip())
    found.update(secret.strip() for secret in (settings.dispatch_secret or "").split(","))
    for url in (settings.database_url, settings.read_url, settings.smtp_url, settings.dispatch):
        try:
            password = urlsplit(url or "").password
        except ValueError:  # it can't be read as a URL: all of it may be a secret
            password = url
        if password:
            found.update((password, unquote(password)))
    return {secret for secret in found if secret}


def _is_unmistakable(secret: str) -> bool:
    """Whether nobody would write it unless they meant the secret."""
    return (
        len(secret) >= _LEAST_UNMISTAKABLE
        and any(character.isdigit() for character in secret)
        and any(character.isalpha() for character in secret)
    )


def _hide_password(address: re.Match[str]) -> str:
    """From the end of the user's name to the last @: a password may hold anything in between."""
    text = address[0]
    last = text.rfind("@")
    begins = 0
    while (begins := text.find("://", begins, last)) >= 0:
        begins += 3
        if user := _USER.match(text, begins, last):
            return f"{text[: user.end()]}{HIDDEN}{text[last:]}"
    return text


class Redactor:
    def __init__(self) -> None:
        self._secrets: list[str] = []

    def learn(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be part of another.
        known = {*self._secrets, *filter(_is_unmistakable, secrets)}
        self._secrets = sorted(known, key=len, reverse=True)

    def clean(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        text = _ADDRESS.sub(_hide_password, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text
