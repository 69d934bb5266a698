"""Values of files that are replaced: lib/reloading.py, and the encryption keys that are one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proof.waiting import eventually
from rota import App, ConfigError
from rota.lib import reloading
from rota.lib.reloading import Reloading, read_secret
from rota.node import Node
from rota.store.encrypted import Encryption
from tests.support.encrypted import NEW, OLD


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOOK_EVERY", 0.0)


def test_a_file_that_is_replaced_is_read_again_and_only_then(tmp_path: Path) -> None:
    file, reads = tmp_path / "secret", []
    file.write_text("one\n")

    def read() -> str:
        reads.append(1)
        return read_secret(file, "secret")

    value = Reloading([file], read)
    assert [value.get(), value.get()] == ["one", "one"]
    assert len(reads) == 1
    (tmp_path / "next").write_text("two")
    os.replace(tmp_path / "next", file)
    assert [value.get(), value.get()] == ["two", "two"]
    assert len(reads) == 2


def test_the_link_of_kubernetes_is_followed(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_text(name)
    data = tmp_path / "data"
    data.symlink_to("old")
    value = Reloading([data / "secret"], lambda: read_secret(data / "secret", "secret"))
    assert value.get() == "old"
    (tmp_path / "other").symlink_to("new")
    os.replace(tmp_path / "other", data)
    assert value.get() == "new"


def test_what_cannot_be_read_leaves_the_last_value_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigError, match=r"secret .*No such file"):
        Reloading([file], lambda: read_secret(file, "secret"))
    file.write_text("one")
    value = Reloading([file], lambda: read_secret(file, "secret"))
    file.unlink()
    with caplog.at_level(logging.WARNING):
        assert [value.get(), value.get(), value.get()] == ["one"] * 3
    assert len(caplog.records) == 1
    file.write_bytes(b"\xff\xfe")
    assert value.get() == "one"
    file.write_text("three")
    assert value.get() == "three"


def test_encryption_keys_in_a_file_change_without_a_restart(
    make_app: Callable[..., App], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(OLD)
    encryption = Encryption(make_app(encryption_keys_file=file).settings)
    assert encryption.ring is not None
    assert encryption.ring.names == ["old"]
    file.write_text(f"{NEW}\n{OLD}")
    assert encryption.ring.names == ["new", "old"]
    file.write_text("new:not-a-key")
    assert encryption.ring.names == ["new", "old"]


async def test_a_node_says_which_keys_it_has_when_their_file_is_replaced(
    make_app: Callable[..., App], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(OLD)
    app = make_app(encryption_keys_file=file, heartbeat=0.1)

    async def keys() -> list[str]:
        async with (await app.store()).database.connection() as connection:
            found: list[str] = await connection.fetchval(
                f"select keys from {app.settings.schema}.node"
            )
        return found

    async def are(wanted: list[str]) -> bool:
        return await keys() == wanted

    async with Node(app).running():
        assert await keys() == ["old"]
        file.write_text(f"{OLD},{NEW}")
        await eventually(lambda: are(["old", "new"]))
