"""What Beat starts."""

from mailroom.celery import app


@app.task
def daily_report(day="today"):
    return f"report of {day}"


@app.task(acks_late=True, time_limit=600)
def cleanup(days=7):
    return f"removed what is older than {days} days"


@app.task
def heartbeat():
    return "alive"


@app.task
def bill(customer="everybody"):
    return f"billed {customer}"
