"""The tasks of the shop."""

from decimal import Decimal

from django.core.mail import send_mail
from django.utils import timezone

try:
    from django.tasks import task  # Django 6
except ImportError:
    from django_tasks import task  # Django 5.2

from rota import Retry
from rota.integrations.django import cron

from .models import Booking, Order


@task(guarantee="exactly_once", retry=Retry(max_attempts=3, base=0))
def confirm(order_id, price="9.90"):
    """Book an order. What it writes happens exactly once: in the transaction that ends its job."""
    order = Order.objects.select_for_update().get(pk=order_id)
    order.confirmed_at = timezone.now()
    order.save()
    Booking.objects.create(order=order, amount=Decimal(price) * order.quantity)
    thank.enqueue(order.pk)  # part of the same transaction
    return str(order)


@task(queue_name="mail", retry=Retry(max_attempts=5, base=1))
def thank(order_id):
    """Send a mail. A mail server may be down: it is tried again."""
    order = Order.objects.get(pk=order_id)
    send_mail("Thank you", f"You ordered {order}.", "shop@example.com", ["you@example.com"])


@task
async def count_orders():
    """Count the orders, in a coroutine."""
    return await Order.objects.acount()


@cron("0 7 * * *", name="nightly-report")
@task(takes_context=True)
def report(context, since="yesterday"):
    """Report what was sold, every morning at seven, Paris time."""
    context.rota.progress(1, 2, "counting")
    return {"orders": Order.objects.count(), "since": since, "attempt": context.attempt}
