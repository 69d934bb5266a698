"""Sends e-mail by the server of `smtp_url`: smtps:// with TLS, smtp:// with STARTTLS if it is offered.

A password is never sent in the clear, but to a server on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import ssl
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

_SECONDS = 20.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


class MailFailed(Exception):
    """The message was not taken. `final`: it would not be taken later, either."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


async def send_mail(url: str, message: EmailMessage) -> None:
    """Send a message in a thread. Raises MailFailed."""
    await asyncio.to_thread(_send, url, message)


def _send(url: str, message: EmailMessage) -> None:
    parts = urlsplit(url)
    host, context = parts.hostname or "", ssl.create_default_context()
    try:
        with contextlib.ExitStack() as stack:
            if parts.scheme == "smtps":
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    host, parts.port or 465, timeout=_SECONDS, context=context
                )
            else:
                server = smtplib.SMTP(host, parts.port or 587, timeout=_SECONDS)
            stack.callback(server.close)
            encrypted = parts.scheme == "smtps"
            server.ehlo()
            if not encrypted and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                encrypted = True
            if parts.username:
                if not encrypted and host not in _LOCAL:
                    raise MailFailed(
                        f"{host} offers no TLS, and the password isn't sent in the clear",
                        final=True,
                    )
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(message)
            with contextlib.suppress(smtplib.SMTPException):
                server.quit()
    except smtplib.SMTPRecipientsRefused as error:
        answers = "; ".join(f"{who}: {answer[0]}" for who, answer in error.recipients.items())
        final = all(500 <= answer[0] < 600 for answer in error.recipients.values())
        raise MailFailed(f"{host} refused the recipient: {answers}", final=final) from None
    except smtplib.SMTPResponseException as error:
        raise MailFailed(f"{host} answered {error.smtp_code}: {error.smtp_error!r}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise MailFailed(f"{host}: {str(error) or type(error).__name__}") from None
