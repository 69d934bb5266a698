"""The tasks of the small services."""

from __future__ import annotations

from rota import App

app = App()


@app.task
async def confirm(order_id: int) -> str:
    return f"order {order_id} is confirmed"
