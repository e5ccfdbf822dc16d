"""Every operation is called once by its command, and its response is printed for people."""

import json
from typing import Any

import pytest

from onceward.cli.operations import commands
from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for many commands on a busy machine

URL = "https://example.invalid/hook"
SET = '{"op": "map.set", "map": "m", "key": "k", "value": 1}'
# Commands in order. `{name}` stands for a member of an earlier response; `name=member` at the end
# of a row keeps one. Rows with a code fail with it.
STEPS: list[tuple[str, ...]] = [
    ("messages send q [1] --key a",),
    ("messages send q 1 --key m1 --batch-key c --batch-size 2 --batch-s 60",),
    ("messages send q 2 --key m2 --debounce-key d --debounce-s 5 --debounce-max-s 60",),
    ('messages send-many q {"body":2,"key":"b"} {"body":3,"key":"c"}',),
    ("jobs claim q", "id=jobs.0.id", "token=jobs.0.token"),
    ("jobs extend {id} {token} 60",),
    ("jobs report {id} {token} --progress 0.5 --text half --chunks 1",),
    ("jobs output {id}",),
    ("jobs complete {id} {token} --result 5",),
    ("jobs get {id}",),
    ("jobs history {id}",),
    ("jobs claim q", "id=jobs.0.id", "token=jobs.0.token"),
    ("jobs fail {id} {token} broken --final",),
    ("queues failed q",),
    ("jobs retry {id}",),
    ("jobs settle {id} pay --not-done", "not_failed"),
    ("jobs emit {id} approved --value 1 --key k",),
    ('jobs event-link {id} approved --choices {"Yes":1} --expires-s 60 --text Ship?',),
    ("jobs children {id}",),
    ("jobs count-children {id}",),
    ("jobs cancel {id}",),
    ("jobs list --queue q",),
    ("jobs count --queue q",),
    ("queues configure q --limit 5",),
    ("queues get q",),
    ("queues list",),
    ("queues pause q",),
    ("queues resume q",),
    ("queues redrive q",),
    ("queues purge q --yes",),
    ("locks acquire a b --owner me", "lock=id"),
    ("locks renew {lock} --lease-s 60",),
    ("locks list",),
    ("locks get a",),
    ("locks release {lock}",),
    ("timers create --id t --queue q --delay-s 3600",),
    ("timers get t",),
    ("timers move t --delay-s 7200",),
    ("timers update t --every-s 60 --times 3 --overlap skip",),
    ("timers pause t",),
    ("timers resume t",),
    ("timers list",),
    ("timers list-all",),
    ("timers due",),
    ("timers resend t", "not_failed"),
    ("timers resend t --firing 01HF7YAT007NFS97B5X8K4E97T000", "no_such_firing"),
    ("timers firings t",),
    ("timers cancel t",),
    (f"endpoints create {URL} --id e",),
    (f"endpoints put e {URL}",),
    ("endpoints get e --secret",),
    ("endpoints update e --description shop",),
    ("endpoints rotate e",),
    ("endpoints test e",),
    ("endpoints deliveries e --state succeeded",),
    ("endpoints get-delivery e 01HF7YAT007NFS97B5X8K4E97T000", "no_such_firing"),
    ("endpoints resend e 01HF7YAT007NFS97B5X8K4E97T000", "no_such_firing"),
    ("endpoints resend-many e",),
    ("endpoints create-portal e --expires-s 3600",),
    ("endpoints revoke-portals e",),
    ("endpoints list",),
    ("endpoints delete e",),
    ("rooms create --id r",),
    ("rooms get r",),
    ("rooms update r --keep 50",),
    ("rooms list",),
    ("rooms members r",),
    (f"rooms apply r {SET.replace(' ', '')}",),
    ("rooms snapshot r",),
    ("rooms history r",),
    ("rooms broadcast r hello --value 1",),
    *[(f"rooms put-{kind} r m2",) for kind in ("map", "list", "presence")],
    *[(f"rooms get-{kind} r m2",) for kind in ("map", "list", "presence")],
    *[(f"rooms delete-{kind} r m2",) for kind in ("map", "list", "presence")],
    ("rooms delete r",),
    ("tables create --id t --policy-rated --policy-ready-s 60",),
    ("tables get t",),
    ("tables join t --user ann",),
    ("tables join t --user ben",),
    ("tables watch t --user cas",),
    ("tables ready t --user ann",),
    ("tables ready t --user ben",),
    ("tables heartbeat t --user ann",),
    ("tables place t --user ann",),
    ("tables list",),
    ("tables join t --user dan",),
    ("tables waitlist t",),
    ("tables move t --user ann --move 1", "no_game"),
    ("tables result t --winner ann",),
    ("tables leaders tables",),
    ("tables rating tables ann",),
    ("tables pause t",),
    ("tables resume t",),
    ("tables leave t --user ann",),
    ("tables close t",),
    ("matches get m", "no_such_match"),
    ("matches log m", "no_such_match"),
    ("matches replay m", "no_such_match"),
    ("server activity",),
    ("server overview",),
    ("server senders",),
    ("server settings",),
    ("server clock",),
    ("server confirm-clock",),
    ("keys create billing send:*", "key=id"),
    ("keys list",),
    ("keys delete {key}",),
    ("callers suspended",),
    ("callers suspend key:x",),
    ("callers transfer key:x key:y",),
    ("callers resume key:x",),
    ("sessions create-link",),
    ("sessions list",),
    ("sessions revoke nobody", "no_such_session"),
    ("sessions revoke-all",),
]


def test_every_operation_is_called_by_its_command(command: Command) -> None:
    kept: dict[str, str] = {}
    for text, *rest in STEPS:
        words = [kept.get(word, word) for word in text.split()]
        keeps = [one.split("=") for one in rest if "=" in one]
        if code := [one for one in rest if "=" not in one]:
            assert command.refused(*words)[0].endswith(f"[{code[0]}]"), text
        elif keeps:
            found = command.json(*words)
            kept |= {f"{{{name}}}": _member(found, path) for name, path in keeps}
        else:
            assert "".join(command.listed(*words)).strip(), text
    called = {tuple(text.split()[:2]) for text, *_ in STEPS}
    calls = {
        (noun, one.verb.replace("_", "-")) for noun, found in commands().items() for one in found
    }
    assert calls - called == set()


def test_every_read_operation_prints_its_response_as_json(command: Command) -> None:
    for text in ("queues list", "timers list", "rooms list", "tables list", "server overview"):
        assert isinstance(json.loads(command.said(*text.split(), "--json")), dict)


def _member(value: Any, path: str) -> str:
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return str(value)
