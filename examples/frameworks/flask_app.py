"""Flask: `flask --app frameworks.flask_app run`; a worker is `rota start frameworks.flask_app:rota`."""

from __future__ import annotations

from typing import Any

from flask import Flask, current_app

from rota.integrations.flask import Rota, find_job

rota = Rota("frameworks.flask_app:create_app")


@rota.task
def confirm(order_id: int) -> str:
    # In a child process of the worker, inside the context of an application of its own.
    return f"order {order_id} is {current_app.config['WORD']}"


def create_app() -> Flask:
    api = Flask(__name__)
    api.config["WORD"] = "confirmed"
    rota.init_app(api)

    @api.post("/orders/<int:order_id>")
    def take(order_id: int) -> Any:
        return {"job": str(confirm.submit_sync(order_id).id)}, 202

    @api.get("/jobs/<id>")
    def show(id: str) -> Any:
        job = find_job(id)
        return {"state": job.state, "result": job.result}

    return api
