"""A small OpenID Connect provider, real enough to be lied to: it checks what a provider checks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from joserfc import jwk, jwt

CLIENT_ID = "rota"
CLIENT_SECRET = "a secret between them"


class Provider:
    """Whoever comes is logged in as `claims` says."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.claims: dict[str, Any] = {
            "sub": "user-1", "email": "ada@example.org", "email_verified": True,
        }  # fmt: skip
        self.spoilt: dict[str, Any] = {}  # put into ID tokens over what belongs there
        self.key = jwk.ECKey.generate_key("P-256", {"kid": "one"})
        self.signs_with = self.key
        self.waiting: dict[str, dict[str, str]] = {}
        self.exchanged = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        status, headers, answer = self.answer(
            scope["path"], _flat(scope["query_string"]), _flat(body), dict(scope["headers"])
        )
        headers = [(b"content-type", b"application/json"), *headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def answer(self, path: str, query: Any, form: Any, headers: Any) -> tuple[int, Any, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, [], {
                "issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks",
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
            }  # fmt: skip
        if path == "/jwks":
            return 200, [], {"keys": [self.key.as_dict(private=False)]}
        if path == "/authorize":
            return self._authorize(query)
        return self._exchange(form, headers)

    def _authorize(self, query: dict[str, str]) -> tuple[int, Any, Any]:
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe()
        self.waiting[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        return 302, [(b"location", f"{query['redirect_uri']}?{back}".encode())], {}

    def _exchange(self, form: dict[str, str], headers: Any) -> tuple[int, Any, Any]:
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        from_client = headers.get(b"authorization", b"").decode() == f"Basic {expected}"
        asked = self.waiting.pop(form.get("code", ""), None)
        if not from_client or asked is None:
            return 400, [], {"error": "invalid_grant"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, [], {"error": "invalid_grant"}
        self.exchanged += 1
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300,
                  "nonce": asked["nonce"], **self.claims, **self.spoilt}  # fmt: skip
        token = jwt.encode({"alg": "ES256", "kid": "one"}, claims, self.signs_with)
        return 200, [], {"access_token": "x", "token_type": "Bearer", "id_token": token}


def _flat(query: bytes) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query.decode()).items()}


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def providing() -> AsyncIterator[Provider]:
    """A provider on a loopback port of its own."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    provider = Provider(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(provider, log_config=None, lifespan="off", loop="none")
    server = _Uvicorn(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield provider
    finally:
        server.should_exit = True
        await serving
