"""Only who may do everything makes keys, and sees how the server was set up."""

import pytest

from onceward.web.settings import load
from tests.schedule.cluster import virtual
from tests.web.asgi import serving, serving_to

ASKED = {"name": "bob", "scopes": ["all"]}


@virtual
async def test_who_may_not_do_everything_may_do_nothing_here() -> None:
    scopes = "send:* work:* manage:* lock:* timer:* endpoint:* read:* write:* room:* operate:*"
    async with serving_to(ann=scopes) as callers:
        for method, path in (
            ("GET", "/v1/keys"),
            ("POST", "/v1/keys"),
            ("DELETE", "/v1/keys/x"),
            ("GET", "/v1/settings"),
        ):
            answer = await callers["ann"](method, path, ASKED if method == "POST" else None)
            assert answer.verdict == (403, "not_allowed")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": ""}, "wrong_type"),
        ({"name": 1}, "wrong_type"),
        ({"scopes": []}, "wrong_type"),
        ({"scopes": ["everything"]}, "bad_value"),
        ({"scopes": ["send:"]}, "bad_value"),
        ({"name": "\ud800"}, "not_text"),
        ({"more": 1}, "unknown_member"),
    ],
)
@virtual
async def test_a_key_that_cannot_be_is_refused(changes: dict[str, object], code: str) -> None:
    async with serving() as caller:
        answer = await caller("POST", "/v1/keys", {**ASKED, **changes})
        assert answer.code == code
        assert (await caller.ok("GET", "/v1/keys")) == {"keys": []}


@virtual
async def test_settings_are_shown_without_their_secrets() -> None:
    key = {"name": "ann", "digest": "sha256:" + "0" * 64, "scopes": ["all"]}
    flags = {"database": "postgresql://me:secret@db/x", "keys": [key], "origins": "https://a.b"}
    _, found = load(flags, {})
    async with serving(settings=found) as caller:
        told = {one["name"]: one for one in (await caller.ok("GET", "/v1/settings"))["settings"]}
        assert told["database"]["value"] == "postgresql://…@db/x"
        assert told["keys"]["value"] == '[{"name":"ann","scopes":["all"]}]'
        assert told["origins"]["value"] == "https://a.b"
        assert told["port"]["source"] == "default"
        assert told["port"]["meaning"]
        assert "secret" not in str([one["value"] for one in told.values()])
        assert "000" not in told["keys"]["value"]
