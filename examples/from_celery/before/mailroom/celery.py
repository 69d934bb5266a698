"""The app, its configuration, and what Beat starts."""

from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

app = Celery(
    "mailroom",
    broker="redis://localhost:6379/0",
    backend="redis://localhost:6379/1",
    include=["mailroom.tasks", "mailroom.reports"],
)
app.conf.timezone = "Europe/Berlin"
app.conf.task_routes = {"mailroom.reports.*": {"queue": "reports"}}
app.conf.task_soft_time_limit = 300
app.conf.beat_schedule = {
    "report-every-morning": {
        "task": "mailroom.reports.daily_report",
        "schedule": crontab(minute=30, hour=7, day_of_week="mon-fri"),
    },
    "cleanup-on-friday-13th": {
        "task": "mailroom.reports.cleanup",
        "schedule": crontab(minute=0, hour=3, day_of_month=13, day_of_week="fri"),
        "kwargs": {"days": 30},
    },
    "heartbeat": {"task": "mailroom.reports.heartbeat", "schedule": 300.0},
    "ping": {"task": "mailroom.tasks.add", "schedule": timedelta(minutes=30), "args": (2, 3)},
    "first-of-the-month": {
        "task": "mailroom.reports.bill",
        "schedule": crontab(minute=0, hour=0, day_of_month=1),
        "options": {"queue": "billing", "priority": 5},
    },
}
