"""Rota for Flask: tasks run inside the application's context.

    rota = Rota("shop:create_app")

    @rota.task
    def confirm(order_id: int) -> None:
        current_app.logger.info("confirming %s", order_id)

Views submit with ``confirm.submit_sync(7)``; ``rota start shop:rota`` runs a worker.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flask import Flask, current_app

from rota.app import App
from rota.config import Settings
from rota.errors import ConfigError
from rota.lib.sync_bridge import sync_bridge
from rota.model import Job
from rota.task import Task, TaskOptions


class Rota(App):
    """A `rota.App` whose plain functions run inside an application context, one per job.

    Args:
        factory: ``module:function`` that makes the Flask application, or ``module:variable`` that is
            one. Child processes of workers make theirs by it, at their first job.
        settings: of Rota. ``ROTA_DATABASE_URL`` and the like by default.
    """

    def __init__(self, factory: str, settings: Settings | None = None, **given: Any) -> None:
        module, _, name = factory.partition(":")
        if not module or not name.isidentifier():
            raise ConfigError(f"{factory!r} names no application: write module:create_app")
        if settings is not None and given:
            raise ConfigError("give Rota either settings or single settings by name, not both")
        super().__init__(settings or Settings.read(**{"app_name": module, **given}))
        self._factory = (module, name)
        self._flask: Flask | None = None
        self._lock = threading.Lock()

    def init_app(self, flask: Flask) -> None:
        """Use this application, and add Rota to its extensions."""
        flask.extensions["rota"] = self
        self._flask = flask

    @property
    def flask(self) -> Flask:
        """The application: the one of `init_app`, or else a new one by the factory."""
        with self._lock:
            if self._flask is None:
                module, name = self._factory
                made = getattr(import_module(module), name)
                made = made if isinstance(made, Flask) else made()
                if not isinstance(made, Flask):
                    raise ConfigError(
                        f"{module}:{name} returned a {type(made).__name__}, and no Flask application"
                    )
                self._flask = made
            return self._flask

    def _register(
        self, function: Callable[..., Any], name: str | None, options: TaskOptions
    ) -> Task[..., Any]:

        if inspect.iscoroutinefunction(function):  # an application context belongs to a thread
            return super()._register(function, name, options)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.flask.app_context():
                return function(*args, **kwargs)

        return super()._register(run, name, options)


def find_job(id: str) -> Job:
    """Return a job of the current application's Rota. Raises `rota.errors.NotFound`."""
    rota: Rota = current_app.extensions["rota"]
    return sync_bridge.call(lambda: rota.jobs.get(id), "find")
