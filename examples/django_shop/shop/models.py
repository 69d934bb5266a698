"""Orders, and what became of them."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField()
    confirmed_at = models.DateTimeField(null=True)

    def __str__(self):
        return f"{self.quantity} {self.item}"


class Booking(models.Model):
    """A line of the ledger. One per order, or somebody is charged twice."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
