"""Transactions of your own: submits in them, and sessions in exactly_once tasks.

With SQLAlchemy (plain and async), SQLModel and psycopg.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlmodel
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rota import App, Context, Retry, SyncContext
from rota.integrations.sqlalchemy import async_session, session

app = App()
SOON = Retry(max_attempts=3, base=0)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"

    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[Decimal]


class Note(sqlmodel.SQLModel, table=True):
    id: int | None = sqlmodel.Field(default=None, primary_key=True)
    text: str


@app.task(guarantee="exactly_once", retry=SOON)
def deposit(ctx: SyncContext, account_id: int, amount: Decimal) -> str:
    """SQLAlchemy: the new balance and the end of the job are one commit."""
    with session(ctx) as db:
        account = db.scalars(
            select(Account).where(Account.id == account_id).with_for_update()
        ).one()
        account.balance += amount
        db.flush()
        if ctx.attempt == 1:
            raise OSError("the line broke, after the write")
        return str(account.balance)


@app.task(guarantee="exactly_once", retry=SOON)
async def withdraw(ctx: Context, account_id: int, amount: Decimal) -> str:
    """The same in a coroutine."""
    async with async_session(ctx) as db:
        account = (await db.scalars(select(Account).where(Account.id == account_id))).one()
        account.balance -= amount
        await db.flush()
        if ctx.attempt == 1:
            raise OSError("the line broke, after the write")
        return str(account.balance)


@app.task(guarantee="exactly_once", retry=SOON)
def note(ctx: SyncContext, text: str) -> int:
    """SQLModel: its session class, on the same transaction. A rollback undoes what is inside of it."""
    with session(ctx, class_=sqlmodel.Session) as db:
        db.add(Note(text="a mistake"))
        db.flush()
        db.rollback()
        db.add(Note(text=text))
        db.commit()
        return len(db.scalars(select(Note)).all())


@app.task(guarantee="exactly_once", retry=SOON)
def close(ctx: SyncContext, account_id: int) -> None:
    """psycopg: `ctx.connection` is the connection itself."""
    ctx.connection.execute("delete from account where id = %s", [account_id])


def open_account(db: Session, account_id: int, first: Decimal) -> Any:
    """Submit in a session's transaction: the account and its first deposit exist together, or not."""
    db.add(Account(id=account_id, balance=Decimal(0)))
    db.flush()
    return deposit.options(connection=db).submit_sync(account_id, first)
