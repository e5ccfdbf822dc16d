"""Three handlers that look right, what goes wrong with them, and how they are right.

    python examples/handlers.py

Each runs in simulated worlds where nodes crash, stand still and start again, messages come
several times and commits conflict, until a judge finds something that must not be. The
wrong ones are caught within a few worlds; their repaired twins pass all of them.
"""

import logging
from collections import Counter
from typing import Any

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
    """Wrong: a crash after the call and before the end of the job makes the call again."""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("payments", lease_s=2, attempts_max=0, retry_max_s=2)
        async def pay(job: Any) -> None:
            receipt = await outside.call("pay", job.id, job.body["amount"])
            job.tx.put(("receipt", job.id), receipt)


class PaymentInAStep(Payments):
    """Right: the intent is recorded before; whoever is cut off in between leaves a doubt that
    someone can settle, and never a second payment. (If the bank takes an idempotency key, a
    plain step with `job.id` does it without doubts.)"""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("payments", lease_s=2, attempts_max=0, retry_max_s=2)
        async def pay(job: Any) -> None:
            receipt = await job.step(
                "pay", outside.call, "pay", job.id, job.body["amount"], at_most_once=True
            )
            job.tx.put(("receipt", job.id), receipt)


class Tickets(Handlers):
    """No more tickets are sold than there are."""

    seats = 5

    def message(self, random: Any) -> tuple[str, Any]:
        return "tickets", {"buyer": random.randint(1, 99)}

    def judge_outcome(self, outcome: Outcome) -> None:
        sold = [job for job in outcome.jobs.values() if job.get("result") == "sold"]
        if len(sold) > self.seats:
            violated("oversold", f"{len(sold)} tickets for {self.seats} seats")


class TicketsCountedOutside(Tickets):
    """Wrong: between the look and the change, others look too."""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("tickets", lease_s=2, attempts_max=0, retry_max_s=2)
        async def sell(job: Any) -> str:
            left = await outside.get("left", self.seats)
            if left <= 0:
                return "sold out"
            await outside.set("left", left - 1)
            return "sold"


class TicketsCountedInside(Tickets):
    """Right: what is decided upon is read and written in the job's own transaction."""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("tickets", lease_s=2, attempts_max=0, retry_max_s=2)
        async def sell(job: Any) -> str:
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
    """Wrong: what was read in another transaction may have changed until this one writes."""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("wins", lease_s=2, attempts_max=0, retry_max_s=2)
        async def win(job: Any) -> None:
            key = ("score", job.body["player"])
            score = await app.run(lambda tx: tx.get(key)) or 0
            job.tx.put(key, score + 1)


class ScoreReadInTheSameTransaction(Score):
    """Right: if it has changed meanwhile, the handler runs again."""

    def declare(self, app: Any, outside: Any) -> None:
        @app.handler("wins", lease_s=2, attempts_max=0, retry_max_s=2)
        async def win(job: Any) -> None:
            key = ("score", job.body["player"])
            score = await job.tx.get(key) or 0
            job.tx.put(key, score + 1)


PAIRS = (
    (PaymentOutsideAStep, PaymentInAStep),
    (TicketsCountedOutside, TicketsCountedInside),
    (ScoreReadElsewhere, ScoreReadInTheSameTransaction),
)


def main() -> None:
    logging.disable()  # of the many attempts that fail on purpose
    for wrong, right in PAIRS:
        print(f"\n{wrong.__name__}: {(wrong.__doc__ or '').splitlines()[0]}")
        try:
            simulate_many(wrong, range(WORLDS))
            print("  NOT caught")
        except SimulationFailed as failed:
            print(f"  caught by seed {failed.seed}: {str(failed).splitlines()[1].strip()}")
        print(f"{right.__name__}: {(right.__doc__ or '').splitlines()[0]}")
        summary = simulate_many(right, range(WORLDS))
        print(f"  {summary.runs} worlds, nothing wrong")


if __name__ == "__main__":
    main()
