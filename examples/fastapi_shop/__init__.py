"""A shop with FastAPI, SQLAlchemy and PgBouncer. docs/guide/fastapi.md walks through it."""
