"""One-time links: how `rota login` and `rota dev` let somebody in who can reach the database anyway."""

from __future__ import annotations

from rota.errors import NotFound
from rota.lib.ids import new_secret
from rota.server.identity.principal import ANYWHERE
from rota.server.identity.tokens import hash_secret
from rota.server.policy import Role
from rota.store.identity import IdentityStore


async def create_link(
    store: IdentityStore, *, seconds: float, person: str | None = None,
    namespace: str = ANYWHERE, role: str = "admin",
) -> str:  # fmt: skip
    """The link's secret: for a person, or for whoever opens it, in a role."""
    secret = new_secret()
    if person is None:
        await store.create_link(
            hash_secret(secret), person=None, namespace=namespace, role=Role.parse(role).label,
            seconds=seconds,
        )  # fmt: skip
        return secret
    found = await store.find_person(person)
    if found is None:
        raise NotFound(f"there is no person {person!r}; `rota people add` makes one")
    await store.create_link(
        hash_secret(secret), person=found[0], namespace=None, role=None, seconds=seconds
    )
    return secret


def link_url(base: str, secret: str) -> str:
    # After the #, so that it is in no log, no history of a proxy and no Referer.
    return f"{base}/login#{secret}"
