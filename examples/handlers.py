"""Three handlers with common bugs, how the simulator finds the bugs, and the correct versions.

    python examples/handlers.py

Each handler runs in simulated worlds where nodes crash, pause and restart, messages arrive several
times and commits conflict. Checks find the bugs within a few worlds; the correct handlers pass all
of them.
"""

import logging
from collections import Counter
from typing import Any

from onceward import App, Job
from onceward.testing import Handlers, Outcome, SimulationFailed, simulate_many, violated

WORLDS = 40


class Payments(Handlers):
    """A customer must not pay twice for one order."""

    def message(self, random: Any) -> tuple[str, Any]:
        return "payments", {"amount": random.randint(1, 99)}

    def judge_outcome(self, outcome: Outcome) -> None:
        paid = outcome.counts("pay")
        for id_, job in outcome.jobs.items():
            if paid[id_] > 1:
                violated("paid twice", f"{id_} {paid[id_]} times")
            if job["state"] == "succeeded" and not paid[id_]:
                violated("not paid", id_)


class PaymentOutsideAStep(Payments):
    """Wrong: after a crash between the call and the end of the job, the call is repeated."""

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("payments", lease_s=2, attempts_max=0, retry_max_s=2)
        async def pay(job: Job) -> None:
            receipt = await outside.call("pay", job.id, job.body["amount"])
            job.tx.put(("receipt", job.id), receipt)


class PaymentInAStep(Payments):
    """Right: the step records its intent first, so an interrupted call is held in doubt.

    An operator can settle it, and there is never a second payment. If the bank supports idempotency
    keys, use a plain step with `job.id` instead, which leaves no doubt.
    """

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("payments", lease_s=2, attempts_max=0, retry_max_s=2)
        async def pay(job: Job) -> None:
            receipt = await job.step(
                "pay", outside.call, "pay", job.id, job.body["amount"], at_most_once=True
            )
            job.tx.put(("receipt", job.id), receipt)


class Tickets(Handlers):
    """Tickets must not be oversold."""

    seats = 5

    def message(self, random: Any) -> tuple[str, Any]:
        return "tickets", {"buyer": random.randint(1, 99)}

    def judge_outcome(self, outcome: Outcome) -> None:
        sold = [job for job in outcome.jobs.values() if job.get("result") == "sold"]
        if len(sold) > self.seats:
            violated("oversold", f"{len(sold)} tickets for {self.seats} seats")


class TicketsCountedOutside(Tickets):
    """Wrong: other jobs read the count between this read and this write."""

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("tickets", lease_s=2, attempts_max=0, retry_max_s=2)
        async def sell(job: Job) -> str:
            left = await outside.get("left", self.seats)
            if left <= 0:
                return "sold out"
            await outside.set("left", left - 1)
            return "sold"


class TicketsCountedInside(Tickets):
    """Right: the count is read and written in the job's own transaction."""

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("tickets", lease_s=2, attempts_max=0, retry_max_s=2)
        async def sell(job: Job) -> str:
            left = await job.tx.get(("tickets", "left"))
            left = self.seats if left is None else left
            if left <= 0:
                return "sold out"
            job.tx.put(("tickets", "left"), left - 1)
            return "sold"


class Score(Handlers):
    """Every win counts."""

    def message(self, random: Any) -> tuple[str, Any]:
        return "wins", {"player": random.choice(["ann", "bob"])}

    def judge_outcome(self, outcome: Outcome) -> None:
        wins = Counter(
            job["body"]["player"] for job in outcome.jobs.values() if job["state"] == "succeeded"
        )
        scores = outcome.records("score")
        for player, count in wins.items():
            if scores.get(player) != count:
                violated("miscounted", f"{player} won {count} times, the score is {scores}")


class ScoreReadElsewhere(Score):
    """Wrong: a value read in another transaction may have changed before this one writes."""

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("wins", lease_s=2, attempts_max=0, retry_max_s=2)
        async def win(job: Job) -> None:
            key = ("score", job.body["player"])
            score = await app.run(lambda tx: tx.get(key)) or 0
            job.tx.put(key, score + 1)


class ScoreReadInTheSameTransaction(Score):
    """Right: if the value has changed, the handler runs again."""

    def declare(self, app: App, outside: Any) -> None:
        @app.handler("wins", lease_s=2, attempts_max=0, retry_max_s=2)
        async def win(job: Job) -> None:
            key = ("score", job.body["player"])
            score = await job.tx.get(key) or 0
            job.tx.put(key, score + 1)


PAIRS = (
    (PaymentOutsideAStep, PaymentInAStep),
    (TicketsCountedOutside, TicketsCountedInside),
    (ScoreReadElsewhere, ScoreReadInTheSameTransaction),
)


def main() -> None:
    logging.disable()  # many attempts fail on purpose
    for wrong, right in PAIRS:
        print(f"\n{wrong.__name__}: {(wrong.__doc__ or '').splitlines()[0]}")
        try:
            simulate_many(wrong, range(WORLDS))
            print("  NOT caught")
        except SimulationFailed as failed:
            print(f"  caught by seed {failed.seed}: {str(failed).splitlines()[1].strip()}")
        print(f"{right.__name__}: {(right.__doc__ or '').splitlines()[0]}")
        summary = simulate_many(right, range(WORLDS))
        print(f"  {summary.runs} worlds, no violation")


if __name__ == "__main__":
    main()
