"""Code of the documentation that signs tokens grants no more than the resource that was named.

Each block is taken from its page and run with names as an attacker would choose them. To see what
a name can do by itself, the check of the page, `may_enter`, is then replaced by one that lets
everyone in.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jwt
import pytest

from onceward.callers import Caller, admit_name
from onceward.capabilities import SCOPES
from onceward.clock import Clock
from onceward.errors import BadInput
from onceward.rooms.session import RoomAction, allowed
from onceward.tokens import ACTIONS, Grant, grants_in
from onceward.web.auth import Auth, JwtKey
from onceward.web.grants import Issuer
from onceward.web.settings import load
from tests.docs.book import ROOT, Block, blocks, paths
from tests.docs.parts import declare
from tests.hostile import NAMES, OTHERS
from tests.needs import need_program

SECRET = "s" * 32
BLOCKS = [block for page, path in paths().items() for block in blocks(page, path.read_text())]
CODE = ("python", "js", "jsx", "ts", "html")
SIGNS = re.compile(r"\bsign\(|jwt\.encode|authorization_details")
NODE = """
const answers = [];
for (const name of names) {
  answers.push(await tokenFor("ann", name, "%s").catch((error) => error.message));
}
console.log(JSON.stringify(answers));
"""


class Maker(NamedTuple):
    """How the code of a page is asked for a token, and what that may grant."""

    audience: str
    make: Callable[[dict[str, Any], str], str]
    granted: Callable[[str], set[Grant]]


def rooms(names: dict[str, Any], room: str) -> str:
    asked = [
        {"object": "document", "reference": "default", "permission": "read_write", "room": room},
        {"object": "room", "reference": room, "permission": "join"},
    ]
    made = names["auth"]("ann", asked, SECRET)
    assert made["resources"][1] == {**asked[1], "id": room}
    return str(made["token"])


def in_python(function: str, *before: str) -> Callable[[dict[str, Any], str], str]:
    return lambda names, name: str(names[function](*before, name, SECRET))


# (page, words in the block). At the page of rock, paper, scissors the name is that of the user.
MAKERS = {
    ("roomservice.md", "def auth(user"): Maker("rooms", rooms, lambda n: {Grant("write", n)}),
    ("guides/react.md", "def token_for"): Maker(
        "boards", in_python("token_for", "ann"), lambda n: {Grant("write", f"board.{n}")}
    ),
    ("rps.md", "def token_for"): Maker(
        "rps",
        in_python("token_for"),
        lambda n: {Grant("play", "rps"), Grant("read", f"rps:@{Caller('user', '', n).user}")},
    ),
    ("tictactoe.md", "def token_for"): Maker(
        "club",
        lambda names, name: str(names["token_for"]("ann", [name], SECRET)),
        lambda n: {Grant("play", n)},
    ),
    ("seats.md", "def token_for"): Maker(
        "onceward",
        in_python("token_for", "ann"),
        lambda n: {Grant("play", n), Grant("lane", f"{n}/vip")},
    ),
    ("server.md", "def token_for"): Maker(
        "onceward", in_python("token_for", "ann"), lambda n: {Grant("write", n)}
    ),
}
IN_NODE = ("guides/react.md", "export async function tokenFor")


def block_of(where: tuple[str, str]) -> Block:
    [found] = [one for one in BLOCKS if one.page == where[0] and where[1] in one.text]
    return found


def judge(token: str, audience: str, granted: set[Grant]) -> None:
    """A token grants exactly this, whoever would be so bold as to trust its issuer with all."""
    claims = jwt.decode(token, SECRET, ["HS256"], audience=audience)
    assert set(grants_in(claims["authorization_details"])) == granted
    assert set(claims) == {"sub", "aud", "iat", "exp", "authorization_details"}
    auth = Auth(jwt_keys=[JwtKey("HS256", SECRET, audience, ceiling=("all",))])
    caller = auth.caller(f"Bearer {token}", Clock().now_ms())
    assert not caller.grants.everything
    known = {name for _, name in granted}
    every = {*known, *NAMES, *OTHERS, *(f"board.{name}" for name in (*NAMES, *OTHERS))}
    may = {Grant(one, name) for one in ACTIONS for name in every if caller.may(one, name)}  # type: ignore[arg-type]
    included = {
        Grant(one, name)  # type: ignore[arg-type]
        for one in ACTIONS
        for action, name in granted
        if action in SCOPES[one].included_in
    }
    assert may == granted | included
    entered = {
        name for action in get_args(RoomAction) for name in every if allowed(caller, action, name)
    }
    assert entered <= known


def is_user(name: str) -> bool:
    try:
        admit_name(name)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize("where", MAKERS, ids=lambda where: where[0])
def test_no_name_gets_more_than_itself(where: tuple[str, str]) -> None:
    maker = MAKERS[where]
    names = declare(block_of(where).text)
    names["may_enter"] = lambda user, name: True
    for name in NAMES:
        if where[0] == "rps.md" and not is_user(name):
            with pytest.raises(BadInput):
                maker.make(names, name)
        else:
            judge(maker.make(names, name), maker.audience, maker.granted(name))


@pytest.mark.parametrize("where", MAKERS, ids=lambda where: where[0])
def test_who_may_not_enter_gets_no_grant(where: tuple[str, str]) -> None:
    maker = MAKERS[where]
    names = declare(block_of(where).text)
    asked: list[str] = []
    check = names["may_enter"]
    names["may_enter"] = lambda user, name: asked.append(name) or check(user, name)
    for name in NAMES:
        try:
            token = maker.make(names, name)
        except PermissionError:
            continue
        judge(token, maker.audience, set())
    assert len(asked) == len(NAMES)
    # Those who may, can.
    members = names.get("MEMBERS") or dict.fromkeys(names["PLAYERS"], ())
    entered = next(iter(members))
    judge(maker.make(names, entered), maker.audience, maker.granted(entered))


def test_a_back_end_in_javascript_gives_no_more(tmp_path: Path) -> None:
    module = (ROOT / "clients" / "js" / "backend" / "tokens.js").as_uri()
    text = block_of(IN_NODE).text.replace('"onceward/tokens"', json.dumps(module))
    text = f"const names = {json.dumps(NAMES)};\n{text}{NODE % SECRET}"
    refused = answers_of(tmp_path / "page.mjs", text)
    assert refused == ["answer 403"] * len(NAMES)
    database = 'new Map([["7", ["ann", "ben"]]])'
    assert database in text
    everywhere = text.replace(database, 'new Map(names.map((name) => [name, ["ann"]]))')
    for name, token in zip(NAMES, answers_of(tmp_path / "open.mjs", everywhere), strict=True):
        judge(token, "boards", {Grant("write", f"board.{name}")})


def answers_of(path: Path, text: str) -> list[str]:
    path.write_text(text)
    done = subprocess.run(
        [need_program("node"), path], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stderr == ""
    answers: list[str] = json.loads(done.stdout)
    return answers


def test_all_code_that_signs_is_tried_with_hostile_names() -> None:
    tried = [str(block_of(where)) for where in (*MAKERS, IN_NODE)]
    found = [str(one) for one in BLOCKS if one.language in CODE and SIGNS.search(one.text)]
    assert sorted(tried) == sorted(found)


def test_nothing_but_the_helper_makes_tokens() -> None:
    """Neither in the documentation nor in the package, its applications and examples."""
    texts = {str(one): one.text for one in BLOCKS}
    for folder in ("onceward", "examples", "benchmarks", "scripts", "clients"):
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".js", ".ts") and "node_modules" not in inside:
                texts[inside] = path.read_text()
    by_hand = re.compile(r"jwt\.encode|jsonwebtoken|[\"']scope[\"']\s*:\s*f?[\"'`]|SignJWT")
    assert [name for name, text in texts.items() if by_hand.search(text)] == []


def test_ceilings_and_mappings_of_the_pages_are_right(tmp_path: Path) -> None:
    count = 0
    for block in BLOCKS:
        if block.language == "toml" and "[[jwt]]" in block.text:
            (tmp_path / "onceward.toml").write_text(block.text)
            for key in load({}, {}, file=str(tmp_path / "onceward.toml"))[0].jwt:
                Issuer(key.ceiling, key.scopes)
                assert key.ceiling or key.scopes, f"{block}: name what its tokens may grant"
                count += 1
    assert count >= 5
