"""The tables of the shop."""

from django.db import models


class Order(models.Model):
    """An order, and the receipt of its payment."""

    number = models.CharField(max_length=20, unique=True)
    item = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.number
