"""The outcome of a handler's run: failed jobs and their reasons."""

from typing import Any

from onceward.errors import BadInput, InDoubt
from onceward.reasons import leaves
from onceward.work.asleep import Asleep
from onceward.work.job import Job


def failures_of(jobs: list[Job], error: BaseException | None) -> dict[str, BaseException]:
    """The failed jobs with their errors.

    An unhandled error of a job's own step fails only that job. Any other error fails all jobs.
    """
    failures = {job.id: job.failure for job in jobs if job.failure is not None}
    if error is None:
        return failures
    blamed = {id(raised): job for job in jobs for raised in job.raised}
    if all(id(leaf) in blamed for leaf in leaves(error)):
        for leaf in leaves(error):
            failures.setdefault(blamed[id(leaf)].id, leaf)
    else:
        for job in jobs:
            failures.setdefault(job.id, error)
    return failures


def results_of(
    jobs: list[Job], results: Any, failures: dict[str, BaseException]
) -> tuple[dict[str, BaseException], list[Any]]:
    """The results of a batch, one for each job."""
    if results is None:
        return failures, [None] * len(jobs)
    if isinstance(results, list | tuple) and len(results) == len(jobs):
        return failures, list(results)
    error = BadInput(
        f"the handler of a batch must return None or a list with one result for each of its "
        f"{len(jobs)} jobs, not {str(results)[:100]}"
    )
    return {**{job.id: error for job in jobs}, **failures}, [None] * len(jobs)


def principal(error: BaseException) -> BaseException:
    """The most important of several errors: doubt first, then failures, and sleep last."""
    all_ = list(leaves(error))
    for leaf in all_:
        if isinstance(leaf, InDoubt):
            return leaf
    errors = [leaf for leaf in all_ if not isinstance(leaf, Asleep)]
    if len(errors) > 1:
        return error
    return errors[0] if errors else all_[0]
