"""Settings: config.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from rota import App, ConfigError, Settings

# Where a text of its type is none that fits.
TEXTS = {
    "namespace": "acme", "schema": "rota", "pooler": "none", "smtp_url": "smtp://mail.example.com",
    "dispatch": "redis://localhost", "coordination": "etcd://localhost:2379",
    "event_loop": "asyncio", "memory_limits": "cgroup",
}  # fmt: skip
TOGETHER = {"tls_cert": {"ROTA_TLS_KEY": "/k"}, "tls_key": {"ROTA_TLS_CERT": "/c"}}
FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}


def kind_of(field: Any) -> type:
    kinds = [kind for kind in get_args(field.type) or (field.type,) if kind is not type(None)]
    found: type = kinds[0]
    return found


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"connect"}))
def test_every_setting_can_be_given_by_the_environment(name: str):
    kind = kind_of(FIELDS[name])
    text = TEXTS.get(name, {bool: "true", int: "7", float: "7.5", Path: "/x/y"}.get(kind, "text"))
    read = getattr(Settings.read({f"ROTA_{name.upper()}": text, **TOGETHER.get(name, {})}), name)
    if kind in (bool, int, float, Path, str):
        assert isinstance(read, kind)
    assert str(read).lower() == text


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if kind_of(field) is Path])
def test_a_path_may_begin_at_home_or_here(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    more = {"tls_cert": {"tls_key": "k"}, "tls_key": {"tls_cert": "c"}}.get(name, {})
    for text in ("~/secret", "secret", tmp_path / "secret"):
        assert getattr(Settings.read({}, **{name: text}, **more), name) == tmp_path / "secret"


@pytest.mark.parametrize(
    "name", ["database_password", "encryption_keys", "oidc_client_secret", "smtp_url"]
)
def test_a_secret_is_given_as_such_or_in_a_file(name: str):
    with pytest.raises(ConfigError, match=f"give {name} or {name}_file, not both"):
        App(**{name: "smtp://x", f"{name}_file": "/x"})
