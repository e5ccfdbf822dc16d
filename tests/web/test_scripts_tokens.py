"""Tokens that a back end in JavaScript signs are the same as those of Python."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from onceward import limits, tokens
from onceward.clock import Clock
from onceward.tokens import Grant
from onceward.web import scripts
from tests.hostile import NAMES
from tests.needs import need_program
from tests.server_process import ROOT
from tests.typescript import compiled

SECRET = "s" * 32
NOW_MS = 1_700_000_000_000
PROGRAM = """\
import { ACTIONS, sign } from %s;
const answers = [];
for (const [key, options] of JSON.parse(process.argv[2])) {
  try { answers.push(await sign(key, options)); } catch (error) { answers.push(String(error)); }
}
console.log(JSON.stringify([ACTIONS, answers]));
"""
TYPED = """\
import { sign, type Grant } from "onceward/tokens";
const grants: Grant[] = [{ action: "play", name: "club" }, { action: "all" }];
export const made: Promise<string> = sign("secret", { user: "ann", read: ["r1"], grants });
sign(new Uint8Array(32), { user: "ann", algorithm: "ES256", keyId: "k", issuer: "i", nowMs: 1 });
// @ts-expect-error: a user is needed
sign("secret", { read: ["r1"] });
// @ts-expect-error: names are a list
sign("secret", { user: "ann", read: "r1" });
// @ts-expect-error: no such action
sign("secret", { user: "ann", reed: ["r1"] });
// @ts-expect-error: an action other than `all` has a name
sign("secret", { user: "ann", grants: [{ action: "read" }] });
// @ts-expect-error: not every algorithm is taken
sign("secret", { user: "ann", algorithm: "none" });
"""


def signed(folder: Path, *asked: tuple[Any, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The actions that the module knows, and what it answers to each call of `sign`."""
    module = ROOT / "clients" / "js" / "backend" / "tokens.js"
    (folder / "sign.mjs").write_text(PROGRAM % json.dumps(module.as_uri()))
    done = subprocess.run(
        [need_program("node"), folder / "sign.mjs", json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    actions, answers = json.loads(done.stdout)
    return actions, answers


def claims_of(token: str, key: Any = SECRET, algorithm: str = "HS256") -> dict[str, Any]:
    options = {"verify_exp": False, "verify_aud": False}
    return jwt.decode(token, key, [algorithm], options=options)


def test_both_languages_sign_the_same_claims(tmp_path: Path) -> None:
    clock = Clock(wall_ns=lambda: NOW_MS * 1_000_000, boot_ns=lambda: 0)
    lists = {action: [f"{action} 1"] for action in tokens.ACTIONS}
    many = {"read": ["r1", "r2"], "write": ["r1"]}
    wide = {"issuer": "i", "audience": "a", "keyId": "k", "expiresS": 60, "nowMs": NOW_MS}
    actions, made = signed(
        tmp_path,
        *((SECRET, {"user": "änn", "read": [name], "nowMs": NOW_MS}) for name in NAMES),
        (SECRET, {"user": "ann", **lists, "nowMs": NOW_MS}),
        (SECRET, {"user": "ann", **many, "grants": [{"action": "all"}], **wide}),
    )
    ours: list[str] = [
        *(tokens.sign(SECRET, user="änn", read=[name], clock=clock) for name in NAMES),
        tokens.sign(SECRET, user="ann", clock=clock, **lists),  # type: ignore[arg-type]
        tokens.sign(
            SECRET,
            user="ann",
            **many,  # type: ignore[arg-type]
            grants=[Grant("all")],
            issuer="i",
            audience="a",
            key_id="k",
            expires_s=60,
            clock=clock,
        ),
    ]
    assert tuple(actions) == tokens.ACTIONS
    assert list(map(claims_of, made)) == list(map(claims_of, ours))
    headers = [list(map(jwt.get_unverified_header, some)) for some in (made, ours)]
    assert headers[0] == headers[1]


def test_a_private_key_signs_in_javascript(tmp_path: Path) -> None:
    private: dict[str, Any] = {
        "RS256": rsa.generate_private_key(65_537, 2_048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }
    pems = {
        algorithm: key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        for algorithm, key in private.items()
    }
    _, made = signed(
        tmp_path, *((pem, {"user": "ann", "algorithm": name}) for name, pem in pems.items())
    )
    for token, (algorithm, key) in zip(made, private.items(), strict=True):
        assert claims_of(token, key.public_key(), algorithm)["sub"] == "ann"


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (SECRET, {"user": ""}, "the user is"),
    (SECRET, {"user": "ü" * 129}, "more than 256 bytes"),
    (SECRET, {"user": "a\nb"}, "control characters"),
    (SECRET, {"user": "\u202eann"}, "control characters"),
    (SECRET, {"user": "a\x85b"}, "control characters"),
    (SECRET, {"read": ["r1"]}, "the user is"),
    (SECRET, {"user": "ann", "read": "board"}, "use read: [name]"),
    (SECRET, {"user": "ann", "read": [""]}, "name for read"),
    (SECRET, {"user": "ann", "read": ["\ud800"]}, "name for read"),
    (SECRET, {"user": "ann", "read": [7]}, "name for read"),
    (SECRET, {"user": "ann", "reed": ["r1"]}, "unknown action"),
    (SECRET, {"user": "ann", "grants": [{"action": "all", "name": "x"}]}, "has no name"),
    (SECRET, {"user": "ann", "read": list(map(str, range(1_001)))}, "at most 1000 grants"),
    (SECRET, {"user": "ann", "expiresS": 0}, "at least 1"),
    (SECRET, {"user": "ann", "algorithm": "none"}, "unsupported algorithm"),
    (SECRET, {"user": "ann", "algorithm": "toString"}, "unsupported algorithm"),
    ("s" * 31, {"user": "ann"}, "31 bytes; use at least 32"),
    (SECRET, {"user": "ann", "algorithm": "ES256"}, "not a private key as PEM"),
]


def test_what_makes_no_sense_is_not_signed_in_javascript(tmp_path: Path) -> None:
    assert limits.GRANTS_MAX == 1_000
    assert limits.CALLER_BYTES_MAX == 256
    _, answers = signed(tmp_path, *((key, options) for key, options, _ in REFUSED))
    for answer, (_, options, why) in zip(answers, REFUSED, strict=True):
        assert answer.startswith("TypeError: "), options
        assert why in answer


def test_the_types_allow_what_can_be_signed(tmp_path: Path) -> None:
    (tmp_path / "program.ts").write_text(TYPED)
    done = compiled(tmp_path, ["program.ts"])
    assert (done.stdout, done.returncode) == ("", 0)


def test_pages_are_not_served_the_module_that_signs() -> None:
    assert not [name for name in scripts.NAMES if "tokens" in name or "backend" in name]
