"""Kill a bank process three times while it works, and verify that no transfer is lost.

A child process moves money between accounts with many concurrent callers. Each transfer changes two
accounts and writes a note in one commit, and is reported once Onceward has accepted it. The child
is killed without warning (SIGKILL) while it works. Then the file is opened again: every reported
transfer must be there and complete.

    python examples/crash.py
"""

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from onceward import App, Transaction, keys, limits

ROUNDS = 3
CALLERS = 64
ACCOUNTS = 1_000
START_BALANCE = 100
TRANSFERS_BEFORE_KILL = (3_000, 15_000)


def account(number: int) -> tuple[str, str]:
    return "account", keys.number(number)


def note(transfer: str) -> tuple[str, str]:
    return keys.join("transfer", transfer[-1]), transfer


async def transfer(tx: Transaction, id_: str, payer: int, payee: int, amount: int) -> None:
    """One transaction. It is retried if a record that it read has changed before the commit."""
    tx.put(account(payer), (await tx.get(account(payer), int) or 0) - amount)
    tx.put(account(payee), (await tx.get(account(payee), int) or 0) + amount)
    tx.put(note(id_), {"payer": payer, "payee": payee, "amount": amount})


# ---- the child: works until it is killed


async def work(url: str) -> None:
    async with App(url) as app:
        for start in range(0, ACCOUNTS, 50):
            await app.run(partial(open_accounts, numbers=range(start, start + 50)))
        await asyncio.gather(*(call(app) for _ in range(CALLERS)))


async def open_accounts(tx: Transaction, numbers: range) -> None:
    for number in numbers:
        if await tx.get(account(number)) is None:
            tx.put(account(number), START_BALANCE)


async def call(app: App) -> None:
    while True:
        id_ = uuid4().hex
        payer, payee = random.sample(range(ACCOUNTS), 2)
        amount = random.randint(1, 10)
        await app.run(partial(transfer, id_=id_, payer=payer, payee=payee, amount=amount))
        sys.stdout.write(f"{id_}\n")  # accepted: from now on it must not be lost
        sys.stdout.flush()


# ---- the parent: kills the child, and counts


def run_and_kill(url: str) -> tuple[list[str], float]:
    """The transfers reported before the kill, and their number per second."""
    enough = random.randint(*TRANSFERS_BEFORE_KILL)
    reported: list[str] = []
    child = subprocess.Popen([sys.executable, __file__, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    with child, child.stdout:
        for line in child.stdout:
            if not reported:
                started = time.monotonic()
            if line.endswith("\n"):
                reported.append(line.strip())
            if len(reported) == enough:
                child.send_signal(signal.SIGKILL)
                rate = enough / (time.monotonic() - started)
    if child.returncode != -signal.SIGKILL:
        raise SystemExit("the child ended unexpectedly; see its error above")
    return reported, rate


async def audit(url: str) -> tuple[dict[str, dict[str, int]], list[int], float]:
    """All transfers and balances in the file, and the time to open it."""
    started = time.monotonic()
    async with App(url) as app:
        opening_s = time.monotonic() - started
        transfers = {}
        for last_character in "0123456789abcdef":
            transfers.update(await app.run(partial(list_notes, last_character=last_character)))
        balances = await app.run(list_balances)
    return transfers, balances, opening_s


async def list_notes(tx: Transaction, last_character: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    start = ""
    while rows := await tx.scan(keys.join("transfer", last_character), start=start):
        found.update((row.key[1], row.value) for row in rows)
        start = keys.after(rows[-1].key[1])
    return found


async def list_balances(tx: Transaction) -> list[int]:
    return [row.value for row in await tx.scan("account", limit=limits.SCAN_RECORDS_MAX)]


def expected_balances(transfers: dict[str, dict[str, int]]) -> list[int]:
    balances = [START_BALANCE] * ACCOUNTS
    for made in transfers.values():
        balances[made["payer"]] -= made["amount"]
        balances[made["payee"]] += made["amount"]
    return balances


def main() -> int:
    console = Console(highlight=False)
    path = Path(tempfile.mkdtemp(prefix="onceward-demo-")) / "bank.db"
    url = f"sqlite:///{path}"
    console.print(
        f"{CALLERS} callers move money between {ACCOUNTS:,} accounts, and the process is killed.\n"
        "Every accepted transfer must be there afterwards, and be complete.\n"
    )
    table = Table()
    for column in (
        "kill",
        "accepted",
        "found",
        "lost",
        "sum of accounts",
        "accepted/s",
        "opening",
    ):
        table.add_column(column, justify="right")
    accepted: set[str] = set()
    fine = True
    for number in range(1, ROUNDS + 1):
        with console.status(f"round {number} of {ROUNDS}"):
            reported, rate = run_and_kill(url)
            transfers, balances, opening_s = asyncio.run(audit(url))
        accepted.update(reported)
        lost = len(accepted - transfers.keys())
        whole = balances == expected_balances(transfers)
        whole = whole and sum(balances) == ACCOUNTS * START_BALANCE
        fine = fine and whole and not lost
        table.add_row(
            str(number),
            f"{len(accepted):,}",
            f"{len(accepted) - lost:,}",
            f"[red]{lost:,}[/]" if lost else "[green]0[/]",
            "[green]unchanged[/]" if whole else f"[red]{sum(balances):,}[/]",
            f"{rate:,.0f}",
            f"{opening_s * 1000:,.0f} ms",
        )
    console.print(table)
    if fine:
        console.print("[green]No transfer was lost, and all are complete.[/]\n")
    else:
        console.print("[red]A transfer was lost. Please report this, with the file below.[/]\n")
    command = Path(sys.executable).with_name("onceward")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    console.print(
        f"Look at the file with  {command} db inspect {path}\n"
        f"or with  sqlite3 {path} 'select * from record limit 9'",
        soft_wrap=True,
    )
    return 0 if fine else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1]))
    else:
        sys.exit(main())
