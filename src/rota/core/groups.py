"""Groups of a login provider that stand for roles: ``{"sre": "operator", "platform": "admin@*"}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rota.config import check_name
from rota.core.roles import ANYWHERE, BUILT_IN, check_role_names, names_of
from rota.errors import ConfigError

Grants = Mapping[str, str]  # roles by namespace
_FORM = (
    'oidc_groups must be a JSON object of groups and roles, like {"sre": "operator", '
    '"platform": "admin@*", "billing": ["viewer", "operator@billing"]}'
)


def parse_groups(text: str, namespace: str) -> dict[str, list[tuple[str, str]]]:
    """Return the roles of each group, with their namespaces: `namespace` where none is named."""
    if not text.strip():
        return {}
    try:
        given = msgspec.json.decode(text, type=dict[str, str | list[str]])
    except msgspec.DecodeError:
        raise ConfigError(_FORM, field="oidc_groups") from None
    lists = {group: [roles] if isinstance(roles, str) else roles for group, roles in given.items()}
    return {
        group: [_parse(group, each, namespace) for each in roles] for group, roles in lists.items()
    }


def _parse(group: str, text: str, namespace: str) -> tuple[str, str]:
    label, _, where = text.partition("@")
    try:
        role = check_role_names(label, of_user=True)
        if (where := where or namespace) != ANYWHERE:
            check_name("namespace", where)
    except ConfigError as error:
        raise ConfigError(
            f"oidc_groups: group {group[:100]!r}: {error}", field="oidc_groups"
        ) from None
    return where, role


def granted(rules: Mapping[str, list[tuple[str, str]]], groups: Iterable[str]) -> dict[str, str]:
    """Return the roles in each namespace that somebody of these groups has.

    Of the built-in roles that is the highest, since each contains those below; of others all.
    """
    found: dict[str, set[str]] = {}
    for group in groups:
        for where, roles in rules.get(group, ()):
            found.setdefault(where, set()).update(names_of(roles))
    return {
        where: ",".join(sorted(_without_lower(names))) for where, names in sorted(found.items())
    }


def _without_lower(names: set[str]) -> set[str]:
    built_in = [name for name in BUILT_IN if name in names]
    return names - set(built_in[:-1])
