"""Tasks of Django 6, which run as jobs."""

from django.tasks import task


@task(queue_name="reports")
def total(numbers):
    return sum(numbers)


@task(takes_context=True)
def attempt(context):
    return context.attempt


@task
async def later(name):
    return f"hello {name}"


@task
def broken():
    raise ValueError("no report")
