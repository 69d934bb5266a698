"""Login with OpenID Connect: the code flow with state, nonce and PKCE.

Protocol. `begin` remembers a new state (by its hash), nonce and verifier in the database and sends the
browser to the provider; the browser keeps the state in a cookie, too. When it returns, the state must
be that of the cookie and one that is waiting, and is then deleted: so a login can neither be replayed
nor be forced upon another browser. The code is exchanged with the verifier, and the ID token must be
signed by the provider, for us, now, and with the nonce. Who it names must be known here: by the
provider's own id; the first time, by an e-mail address that the provider vouches for. With `oidc_groups`
the provider decides: at each login the roles become those of the groups that the ID token names.
"""

from __future__ import annotations

import hmac
import importlib
import time
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from rota.config import Settings
from rota.core.access import is_label
from rota.core.groups import granted, parse_groups
from rota.errors import ConfigError
from rota.lib.ids import hash_secret, new_secret
from rota.lib.reloading import read_secret
from rota.operations.access import Users
from rota.server.problems import Problem
from rota.store.identity import IdentityStore

_FRESH_SECONDS = 3600.0  # for which the provider's addresses and keys are cached
_LEEWAY = 60  # seconds that the provider's clock may differ
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA"]  # fmt: skip
_REFUSED = "The login at the provider failed. Try again."


class OpenIDConnect:
    """One provider. Needs the extra `rota[oidc]`."""

    def __init__(self, settings: Settings, store: IdentityStore, users: Users) -> None:
        assert settings.oidc_issuer is not None
        secret, file = settings.oidc_client_secret, settings.oidc_client_secret_file
        if not settings.oidc_client_id or not (secret or file):
            raise ConfigError(
                "oidc_issuer also needs oidc_client_id and oidc_client_secret (or "
                "oidc_client_secret_file)"
            )
        if file is not None:
            read_secret(file, "oidc_client_secret_file")  # at the start, it has to be there
        self._issuer = settings.oidc_issuer.rstrip("/")
        self._client_id = settings.oidc_client_id
        self._client_secret = secret or ""
        self._secret_file = file
        self._store = store
        self._users = users
        self._rules = parse_groups(settings.oidc_groups, settings.namespace)
        self._groups_claim = settings.oidc_groups_claim
        self._httpx = _need("httpx")
        self._jwt = _need("joserfc.jwt")
        self._jwk = _need("joserfc.jwk")
        self._metadata: dict[str, Any] = {}
        self._keys: Any = None
        self._fetched_at = float("-inf")

    async def begin(self, callback: str, target: str) -> tuple[str, str]:
        """Return the provider's URL to send the browser to, and the state for its cookie."""
        await self._refresh()
        state, nonce, verifier = new_secret(), new_secret(), new_secret()
        await self._store.begin_oidc(hash_secret(state), nonce, verifier, target)
        query = urlencode({
            "response_type": "code", "client_id": self._client_id, "redirect_uri": callback,
            "scope": "openid email profile", "state": state, "nonce": nonce,
            "code_challenge": _challenge(verifier), "code_challenge_method": "S256",
        })  # fmt: skip
        return f"{self._metadata['authorization_endpoint']}?{query}", state

    async def finish(
        self, *, callback: str, code: str, state: str, cookie: str | None
    ) -> tuple[UUID, str]:
        """Return the user, and the path to go to."""
        if cookie is None or not hmac.compare_digest(state.encode(), cookie.encode()):
            raise Problem(403, "csrf", "This login was not started in this browser. Start again.")
        waiting = await self._store.end_oidc(hash_secret(state))
        if waiting is None:
            raise Problem(403, "csrf", "This login has expired or was already used. Start again.")
        nonce, verifier, target = waiting
        await self._refresh()
        claims = self._read(await self._exchange(code, callback, verifier), nonce)
        email = claims.get("email") if claims.get("email_verified") is True else None
        vouched = email if isinstance(email, str) and is_label(email) else None
        return await self._find(claims, vouched), target

    async def _find(self, claims: dict[str, Any], vouched: str | None) -> UUID:
        if self._rules:
            roles = granted(self._rules, _groups(claims.get(self._groups_claim)))
            user = await self._users.follow_groups(self._issuer, claims["sub"], vouched, roles)
            problem = (
                "You are known to the provider, but in none of the groups that have a role here, or "
                "your e-mail address is not verified there. Ask an admin."
            )
        else:
            user = await self._store.find_user_of_issuer(self._issuer, claims["sub"], vouched)
            problem = (
                "You are known to the provider, but not to Rota. Ask an admin to add your e-mail "
                "address (`rota users add`)."
            )
        if user is None:
            raise Problem(403, "forbidden", problem)
        return user

    async def _exchange(self, code: str, callback: str, verifier: str) -> str:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback,
                "code_verifier": verifier}  # fmt: skip
        try:
            async with self._httpx.AsyncClient(timeout=10) as client:
                answer = await client.post(
                    self._metadata["token_endpoint"], data=form,
                    auth=(self._client_id, self._secret()),
                )  # fmt: skip
            token: str = answer.raise_for_status().json()["id_token"]
        except Exception as error:
            raise Problem(403, "forbidden", _REFUSED) from error
        return token

    def _secret(self) -> str:
        if self._secret_file is None:
            return self._client_secret
        return read_secret(self._secret_file, "oidc_client_secret_file")

    def _read(self, token: str, nonce: str) -> dict[str, Any]:
        """Check an ID token, and return its claims."""
        try:
            decoded = self._jwt.decode(token, self._keys, algorithms=_ALGORITHMS)
            self._jwt.JWTClaimsRegistry(
                leeway=_LEEWAY,
                iss={"essential": True, "value": self._metadata["issuer"]},
                aud={"essential": True, "value": self._client_id},
                exp={"essential": True}, iat={"essential": True}, sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(decoded.claims)  # fmt: skip
        except Exception as error:
            raise Problem(403, "forbidden", _REFUSED) from error
        claims: dict[str, Any] = decoded.claims
        parties = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if len(parties) > 1 and claims.get("azp") != self._client_id:
            raise Problem(403, "forbidden", _REFUSED)
        subject = claims["sub"]  # at most 255 ASCII characters, says the standard
        if not isinstance(subject, str) or not 1 <= len(subject) <= 255 or "\0" in subject:
            raise Problem(403, "forbidden", _REFUSED)
        return claims

    async def _refresh(self) -> None:
        if time.monotonic() < self._fetched_at + _FRESH_SECONDS:
            return
        try:
            async with self._httpx.AsyncClient(timeout=10) as client:
                found = await client.get(f"{self._issuer}/.well-known/openid-configuration")
                metadata = found.raise_for_status().json()
                keys = (await client.get(metadata["jwks_uri"])).raise_for_status().json()
            if metadata["issuer"].rstrip("/") != self._issuer:
                raise ValueError("the provider has another issuer")
            self._keys = self._jwk.KeySet.import_key_set(keys)
        except Exception as error:
            raise Problem(503, "unavailable", "the login provider can't be reached") from error
        self._metadata = metadata
        self._fetched_at = time.monotonic()


def _groups(claim: Any) -> list[str]:
    """Return the groups of a claim: a list, or a single one. Anything else has none."""
    given = [claim] if isinstance(claim, str) else claim
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else []


def _challenge(verifier: str) -> str:
    challenge: str = _need("authlib.oauth2.rfc7636").create_s256_code_challenge(verifier)
    return challenge


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(
            "logging in with OpenID Connect needs the extra oidc: pip install 'rota[oidc]'"
        ) from None
