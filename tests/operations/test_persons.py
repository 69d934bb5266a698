"""Values sealed for persons, and their erasure: operations/persons.py and lib/sealing.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from rota import App, PersonErased
from rota.core.administration import Person
from rota.errors import ConfigError, InvalidArguments, KeyMissing, NotAuthentic, NotFound
from rota.store.reencryption import Reencryption
from tests.support.command_line import run
from tests.support.encrypted import NEW, OLD
from tests.support.sandboxes import isolated

ADA = "customer-4711"
NAME = "Augusta Ada Byron"


@dataclass
class Address:
    name: str
    born: date


@pytest.fixture
def keyed(make_app: Callable[..., App]) -> App:
    return make_app(encryption_keys=OLD)


async def rows(app: App) -> list[dict[str, Any]]:
    database = (await app.store()).database
    async with database.connection() as connection:
        found = await connection.fetch(
            f"select * from {database.schema}.person where namespace = $1 order by created_at",
            app.settings.namespace,
        )
    return [dict(row) for row in found]


async def test_a_sealed_value_is_opened_as_it_was(keyed: App) -> None:
    address = Address(NAME, date(1815, 12, 10))
    sealed = await keyed.persons.seal(ADA, address)
    assert NAME not in sealed
    assert ADA not in sealed
    assert await keyed.persons.open(sealed, Address) == address
    assert await keyed.persons.open(sealed) == {"name": NAME, "born": "1815-12-10"}
    for value in (None, "", [1, 2.5], {"a": {"b": "\0"}}):
        assert await keyed.persons.open(await keyed.persons.seal(ADA, value)) == value


async def test_a_person_has_one_key_whose_row_does_not_name_them(keyed: App) -> None:
    sealed = await asyncio.gather(*(keyed.persons.seal(ADA, n) for n in range(20)))
    assert len(set(sealed)) == 20
    [row] = await rows(keyed)
    assert ADA not in str(row)
    assert [await keyed.persons.open(each) for each in sealed] == list(range(20))


async def test_who_is_erased_is_read_by_nobody_again_from_that_moment_on(
    keyed: App, make_app: Callable[..., App]
) -> None:
    other = make_app(encryption_keys=OLD, namespace=keyed.settings.namespace)
    sealed, kept = await keyed.persons.seal(ADA, NAME), await keyed.persons.seal("bob", "Bob")
    assert await other.persons.open(sealed) == NAME
    erased = await keyed.persons.erase(ADA)
    for app in (keyed, other):
        with pytest.raises(PersonErased, match="was erased at"):
            await app.persons.open(sealed)
        assert await app.persons.open(kept) == "Bob"
    gone = next(row for row in await rows(keyed) if row["id"] == erased.id)
    assert (gone["key"], gone["fingerprint"]) == (None, None)
    with pytest.raises(NotFound, match="nothing was sealed for them"):
        await keyed.persons.erase(ADA)


async def test_who_comes_back_is_somebody_new(keyed: App) -> None:
    before = await keyed.persons.seal(ADA, NAME)
    await keyed.persons.erase(ADA)
    after = await keyed.persons.seal(ADA, NAME)
    assert await keyed.persons.open(after) == NAME
    with pytest.raises(PersonErased):
        await keyed.persons.open(before)


async def test_a_job_that_meets_an_erased_value_ends_and_is_not_retried(database_url: str) -> None:
    async with isolated(App(database_url=database_url, encryption_keys=OLD)) as sandbox:
        app = sandbox.app

        @app.task
        async def send_letter(to: str) -> str:
            return await app.persons.seal(ADA, f"sent to {await app.persons.open(to)}")

        sealed = await app.persons.seal(ADA, NAME)
        first = await send_letter.submit(sealed)
        await sandbox.run_due()
        job = await app.jobs.get(first.id)
        assert job.state == "succeeded"
        assert NAME not in str(job)
        assert await app.persons.open(job.result) == f"sent to {NAME}"
        await app.persons.erase(ADA)
        second = await send_letter.submit(sealed)
        await sandbox.run_due()
        job = await app.jobs.get(second.id)
        assert (job.state, job.attempt) == ("failed", 1)
        assert job.error is not None
        assert job.error.type.endswith("PersonErased")
        with pytest.raises(PersonErased):
            await app.persons.open((await app.jobs.get(first.id)).result)


async def test_an_erasure_is_in_the_audit_log_without_the_name(keyed: App) -> None:
    await keyed.persons.seal(ADA, NAME)
    erased = await keyed.persons.erase(ADA)
    [entry] = await keyed.rota.audit.list(namespace=keyed.settings.namespace, limit=10)
    assert (entry.action, entry.subject) == ("erase", f"person {erased.id}")
    assert ADA not in str(entry)
    assert NAME not in str(entry)
    assert await keyed.persons.erase_ids([erased.id]) == []  # nothing changed, and nothing recorded
    assert len(await keyed.rota.audit.list(namespace=keyed.settings.namespace, limit=10)) == 1


async def test_after_a_restore_they_are_erased_again_by_their_ids(keyed: App) -> None:
    sealed = await keyed.persons.seal(ADA, NAME)
    [before] = await rows(keyed)
    erased = await keyed.persons.erase(ADA)
    database = (await keyed.store()).database
    async with database.connection() as connection:  # the backup is of before
        await connection.execute(
            f"update {database.schema}.person set key = $2, fingerprint = $3, erased_at = null"
            " where id = $1", before["id"], before["key"], before["fingerprint"],
        )  # fmt: skip
    assert await keyed.persons.open(sealed) == NAME
    assert [each.id for each in await keyed.persons.erase_ids([erased.id, uuid4()])] == [erased.id]
    with pytest.raises(PersonErased):
        await keyed.persons.open(sealed)


async def test_a_changed_encryption_key_keeps_what_was_sealed_and_finds_whom_to_erase(
    keyed: App, make_app: Callable[..., App]
) -> None:
    namespace = keyed.settings.namespace
    by_old = await keyed.persons.seal(ADA, "old")
    # A node that has the new key already, and had not seen the row of the other.
    alone = make_app(encryption_keys=NEW, namespace=namespace)
    by_new = await alone.persons.seal(ADA, "new")
    assert len(await rows(keyed)) == 2
    both = make_app(encryption_keys=f"{NEW},{OLD}", namespace=namespace)
    done = await Reencryption((await both.store()).database).run()
    assert (done.encrypted, done.left) == (1, 0)
    assert {each.key: each.values for each in await both.rota.encryption.count()} == {"new": 2}
    assert [await alone.persons.open(each) for each in (by_old, by_new)] == ["old", "new"]
    await alone.persons.seal(ADA, "again")
    assert len(await rows(keyed)) == 2
    await alone.persons.erase(ADA)
    for each in (by_old, by_new):
        with pytest.raises(PersonErased):
            await alone.persons.open(each)


async def test_nobody_is_erased_by_name_without_all_the_keys_they_may_be_found_by(
    keyed: App, make_app: Callable[..., App]
) -> None:
    """One who has only the old key finds one of two rows, and would say that the person is erased."""
    namespace = keyed.settings.namespace
    by_old = await keyed.persons.seal(ADA, "old")
    alone = make_app(encryption_keys=NEW, namespace=namespace)
    by_new = await alone.persons.seal(ADA, "new")
    for app in (keyed, alone):
        with pytest.raises(KeyMissing, match="which this process doesn't have"):
            await app.persons.erase(ADA)
    assert (await keyed.persons.open(by_old), await alone.persons.open(by_new)) == ("old", "new")
    both = make_app(encryption_keys=f"{NEW},{OLD}", namespace=namespace)
    await both.persons.erase(ADA)
    for each in (by_old, by_new):
        with pytest.raises(PersonErased):
            await both.persons.open(each)


async def test_a_value_of_another_namespace_or_one_that_was_changed_is_refused(
    keyed: App, make_app: Callable[..., App]
) -> None:
    sealed = await keyed.persons.seal(ADA, NAME)
    elsewhere = make_app(encryption_keys=OLD, namespace="elsewhere")
    with pytest.raises(NotAuthentic, match="not known in the namespace"):
        await elsewhere.persons.open(sealed)
    other = await keyed.persons.seal("bob", "Bob")
    swapped = f"{sealed.rsplit('.', 1)[0]}.{other.rsplit('.', 1)[1]}"
    head, _, last = sealed.rpartition(".")
    for wrong in (swapped, sealed[:-8], f"{head}.{last[::-1]}", "rota-sealed:", "rota-sealed:1.x.y",
                  sealed.replace("1.", "2.", 1), NAME, "", None, 7):  # fmt: skip
        with pytest.raises(NotAuthentic):
            await keyed.persons.open(wrong)  # type: ignore[arg-type]


async def test_what_cannot_be_sealed_says_why(keyed: App, app: App) -> None:
    with pytest.raises(InvalidArguments, match="can't be sealed"):
        await keyed.persons.seal(ADA, object())
    for name in ("", "x" * 201, "a\0b", 7):
        with pytest.raises(ConfigError, match="1 to 200 characters"):
            await keyed.persons.seal(name, NAME)  # type: ignore[arg-type]
    with pytest.raises(KeyMissing, match="ROTA_ENCRYPTION_KEYS"):
        await app.persons.seal(ADA, NAME)


async def _make(environ: dict[str, str]) -> tuple[Person, Person]:
    app = App(encryption_keys=OLD, **_settings(environ))
    for person in (ADA, "bob"):
        await app.persons.seal(person, NAME)
    found = await app.persons.find(ADA), await app.persons.find("bob")
    await app.close()
    return found


def _settings(environ: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("ROTA_").lower(): value for name, value in environ.items()}


def test_the_command_line_lists_and_erases(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ada, bob = asyncio.run(_make(environ))
    assert {each["id"] for each in run("persons", "--json").json} == {str(ada.id), str(bob.id)}
    assert "no encryption key" in run("persons", "erase", ADA, "--yes").err
    monkeypatch.setenv("ROTA_ENCRYPTION_KEYS", OLD)
    assert str(ada.id) in run("persons", "show", ADA).out
    assert run("persons", "erase", ADA).code != 0  # nobody has agreed
    done = run("persons", "erase", ADA, "--yes")
    assert (done.code, done.out.strip()) == (0, f"erased {ada.id}")
    [gone] = run("persons", "list", "--erased", "--json").json
    assert (gone["id"], json.dumps(gone).count(ADA)) == (str(ada.id), 0)
    assert run("persons", "erase", ADA, "--yes").code == 1
    monkeypatch.delenv("ROTA_ENCRYPTION_KEYS")  # by ids it needs no key
    file = tmp_path / "erased"
    file.write_text(f"{ada.id}\n{bob.id}\n")
    assert run("persons", "erase", "--ids", str(file), "--yes").out.strip() == f"erased {bob.id}"
    assert run("persons", "erase", "--id", str(UUID(int=7)), "--yes").code == 0
    file.write_text(f"{ada.id}\nnonsense\n")
    assert "line 2: 'nonsense'" in run("persons", "erase", "--ids", str(file), "--yes").err
    assert run("persons", "erase", "--yes").code == 2
