"""The classes of both clients have the same names, but for those listed here, each with its reason.

The methods and structs of operations are generated: see test_scripts_operations.py.
"""

import inspect
import re
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onceward import client as python
from onceward.api.rooms import RoomMember
from onceward.client.rooms.objects import Undone
from onceward.rooms.frames import Said

FOLDER = Path(__file__).parents[2] / "clients" / "js"


class Wanted(NamedTuple):
    """What only one of them has."""

    python: Set[str] = frozenset()
    browser: Set[str] = frozenset()


CLASSES: dict[str, type] = {
    name: getattr(python, name)
    for name in ("Live", "Room", "RoomMap", "RoomList", "Presence", "Saved", "Worker", "LivePlace")
}
ANSWERS: dict[str, type] = {
    "Item": python.Item,
    "Member": RoomMember,
    "Said": Said,
    "Undone": Undone,
    "Who": python.Who,
}

# A page has one clock and one kind of randomness, and opens nothing before it is used.
_RUNS = {"open", "clock", "ids"}
WANTED = {
    # Those of Python are for its rooms. A page is woken by the browser, too.
    "Live": Wanted(
        python={*_RUNS, "stir", "nowMs", "restart", "rejoin", "forget"}, browser={"wake"}
    ),
    # Those of Python are for its connection, and for its maps and lists; those of the browser for
    # hands that drag, and for buttons that are on or off.
    "Room": Wanted(
        python={
            *("replica", "presences", "change", "newItem", "setPresence", "removePresence"),
            *("call", "takeOut", "lost", "close", "receive", "renew", "settle", "tries"),
            "presenceRefused",
        },
        browser={"gesture", "onSteps"},
    ),
    # Python says `in`, `len` and `[…]`.
    "RoomMap": Wanted(python={"tell"}, browser={"has", "size"}),
    "RoomList": Wanted(python={"tell"}, browser={"has", "length", "at"}),
    "Presence": Wanted(python={"tell"}),
    # Python says `await`.
    "Saved": Wanted(browser={"then", "catch"}),
    # In Python it is the frame as it came.
    "Said": Wanted(python={"room"}),
}
# Keywords of Python that there are not in a page, by method.
KEYWORDS = {
    "Live.constructor": {"clock", "ids"},
}


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name.rstrip("_"))


def names_of(kind: type) -> set[str]:
    """What a class of Python has for everyone: members, and what is set when one is made."""
    names = {name for name in dir(kind) if not name.startswith("_")}
    if issubclass(kind, tuple):
        names -= set(dir(tuple))
    if hasattr(kind, "__struct_fields__"):
        names |= set(kind.__struct_fields__)
    else:
        for base in kind.__mro__[:-1]:
            source = inspect.getsource(base.__init__) if "__init__" in vars(base) else ""  # type: ignore[misc]
            names |= set(re.findall(r"^\s+self\.([a-z]\w*)(?:: [^=\n]+)? = ", source, re.MULTILINE))
    return {camel(name) for name in names}


def declared() -> dict[str, dict[str, str]]:
    """The classes and interfaces of the types: their members, and how each is declared."""
    found: dict[str, dict[str, str]] = {}
    for file in ("client", "http"):
        text = re.sub(r"/\*\*.*?\*/", "", (FOLDER / f"{file}.d.ts").read_text(), flags=re.DOTALL)
        pattern = r"^export (?:class|interface) (\w+)[^{]*\{\n(.*?)^\}"
        for name, body in re.findall(pattern, text, re.MULTILINE | re.DOTALL):
            members = found.setdefault(name, {})
            pieces = re.split(r"^  (?=(?:readonly )?\w+[?<(:])", body, flags=re.MULTILINE)
            for piece in pieces[1:]:
                member = re.match(r"(?:readonly )?(\w+)", piece)
                assert member is not None
                members[member[1]] = members.get(member[1], "") + piece
    return found


TYPES = declared()


@pytest.mark.parametrize("name", [*CLASSES, *ANSWERS])
def test_both_clients_have_the_same_names(name: str) -> None:
    here = names_of({**CLASSES, **ANSWERS}[name])
    there = set(TYPES[name]) - {"constructor", "private"}
    assert len(here & there) >= 1
    wanted = WANTED.get(name, Wanted())
    assert (here - there, there - here) == (wanted.python, wanted.browser)


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_the_same_keywords(name: str) -> None:
    for method, declaration in TYPES[name].items():
        python_name = "__init__" if method == "constructor" else snake(method)
        found: Any = inspect.getattr_static(CLASSES[name], python_name, None)
        if not callable(found) or "private constructor" in declaration:
            continue
        options = [member for member in TYPES if re.search(rf"\b{member}\b", declaration)]
        text = declaration + "".join(
            "".join(TYPES[one].values()) for one in options if re.search("(Options|Settings)$", one)
        )
        words = set(re.findall(r"\w+", text))
        keywords = {
            camel(parameter.name)
            for parameter in inspect.signature(found).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        assert keywords - words == KEYWORDS.get(f"{name}.{method}", set()), f"{name}.{method}"


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def test_each_name_that_is_listed_is_of_some_class() -> None:
    assert set(WANTED) <= {*CLASSES, *ANSWERS}
    assert {name.partition(".")[0] for name in KEYWORDS} <= set(CLASSES)
