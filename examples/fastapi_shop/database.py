"""The shop's own tables, as the role `shop`, through PgBouncer."""

from __future__ import annotations

import os
from decimal import Decimal
from uuid import uuid4

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

# In transaction mode, two transactions of one client may get two server connections: nothing may be kept
# on a connection from one transaction to the next, and above all no prepared statement.
engine = create_async_engine(
    os.environ["SHOP_DATABASE_URL"],
    poolclass=NullPool,  # PgBouncer is the pool
    connect_args={
        "prepared_statement_cache_size": 0,  # SQLAlchemy keeps none
        "statement_cache_size": 0,  # asyncpg keeps none
        # The names of two clients never meet on a server connection that both have used.
        "prepared_statement_name_func": lambda: f"shop_{uuid4()}",
    },
)
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": "shop"}  # noqa: RUF012 - SQLAlchemy's own way

    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]
    price: Mapped[Decimal]
    state: Mapped[str] = mapped_column(default="new")
