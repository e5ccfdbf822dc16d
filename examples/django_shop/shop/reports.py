"""Tasks of Django 6, which run as jobs."""

from django.tasks import TaskContext, task


@task(queue_name="reports")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(takes_context=True)
def attempt(context: TaskContext) -> int:
    return context.attempt


@task
async def later(name: str) -> str:
    return f"hello {name}"


@task
def broken() -> None:
    raise ValueError("no report")
