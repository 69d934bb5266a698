"""What the rest of the application asks for."""

from celery import chain, chord, group, shared_task


@shared_task
def add(a, b):
    return a + b


@shared_task
def double(n):
    return n * 2


@shared_task
def total(numbers):
    return sum(numbers)


@shared_task(bind=True, autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
def fetch(self, url):
    """Fetch a page: the network may fail for a while."""
    if self.request.retries < 2:
        raise OSError(f"{url} can't be reached")
    return f"{url} after {self.request.retries} retries"


@shared_task(bind=True, max_retries=2)
def charge(self, order_id):
    """Charge an order: the bank says when to come back."""
    try:
        if self.request.retries < 1:
            raise ConnectionError("the bank is closed")
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=60)
    return {"order": order_id, "charged": True}


@shared_task(bind=True, max_retries=1, default_retry_delay=1)
def hopeless(self):
    raise self.retry(exc=ValueError("never works"))


@shared_task(name="mailroom.notify", ignore_result=True)
def notify(user, template="hello"):
    print(f"{template}, {user}")


def in_a_row(n):
    """Add, then double twice."""
    return chain(add.s(n, 1), double.s(), double.s())


def side_by_side(numbers):
    """Double each number, and add them up."""
    return chord([double.s(n) for n in numbers], total.s())


def each(numbers):
    """Double each number."""
    return group(double.s(n) for n in numbers)
