"""The application behind the server that pages of the documentation talk to."""

from __future__ import annotations

from rota import App

app = App()


@app.task
async def email_send(to: str) -> str:
    print("a letter to", to)
    return f"sent to {to}"
