"""The generated classes: up to date, and with every public method of the asynchronous API."""

import inspect
from typing import Any

import pytest

import onceward
from onceward.client import Client as AsyncClient
from onceward.client.rooms.room import Room as AsyncRoom
from onceward.store.user_records import UserTransaction
from onceward.sync import App, Client, Room, Transaction
from scripts import generate_sync

# What has no synchronous form, and why.
LEFT_OUT = {
    "App": {
        "meters",
        "alarms",
        "work_until_signal",  # in an event loop of the caller
    },
    "Client": {"run", "call", "forked"},  # for the classes of operations
    "Room": {
        *("change", "new_item", "set_presence", "remove_presence", "call", "take_out"),
        *("lost", "close", "receive", "presence_refused", "renew", "settle"),  # for connections
    },
    "Transaction": set[str](),
}


def public(of: type) -> set[str]:
    return {
        name
        for name, found in inspect.getmembers(of)
        if not name.startswith("_") and (inspect.isroutine(found) or isinstance(found, property))
    }


def test_the_generated_files_are_up_to_date() -> None:
    found = {
        path.relative_to(generate_sync.FOLDER).as_posix(): path.read_text()
        for folder in ("app", "client")
        for path in generate_sync.FOLDER.joinpath(folder).glob("*.py")
    }
    assert found == generate_sync.files(), "run `make generate`"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (App, onceward.App),
        (Client, AsyncClient),
        (Room, AsyncRoom),
        (Transaction, UserTransaction),
    ],
    ids=["app", "client", "room", "transaction"],
)
def test_each_asynchronous_method_has_a_synchronous_form(ours: type, theirs: type) -> None:
    assert public(theirs) - public(ours) == LEFT_OUT[ours.__name__]


@pytest.mark.parametrize(("ours", "theirs"), [(App.send, onceward.App.send)])
def test_parameters_are_the_same(ours: Any, theirs: Any) -> None:
    found = inspect.signature(ours).parameters
    assert list(found) == list(inspect.signature(theirs).parameters)
    assert [one.default for one in found.values()] == [
        one.default for one in inspect.signature(theirs).parameters.values()
    ]
    assert not inspect.iscoroutinefunction(ours)
