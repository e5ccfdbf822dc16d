"""Bodies are taken as they were meant, or not at all."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.queues import QueueSettingsView
from onceward.errors import BadInput
from onceward.strict_json import parse, parse_by


class Thing(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    body: Any
    count: int = 0
    name: str | None = None


def code(raw: bytes, type_: Any = Thing) -> str:
    with pytest.raises(BadInput) as refused:
        parse(raw, type_)
    assert len(refused.value.message) < 1_000
    return refused.value.code


DEEP = limits.JSON_DEPTH_MAX - 1  # the object around it is one more

BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not_json"),
    "spaces": (b"  \n", "not_json"),
    "words": (b"hello", "not_json"),
    "cut off": (b'{"body":', "not_json"),
    "comma at the end": (b'{"body":1,}', "not_json"),
    "two values": (b'{"body":1} {}', "not_json"),
    "byte order mark": (b'\xef\xbb\xbf{"body":1}', "not_json"),
    "control character": (b'{"body":"\x00"}', "not_json"),
    "single quotes": (b"{'body':1}", "not_json"),
    "UTF-16": ('{"body":1}'.encode("utf-16"), "not_text"),
    "not UTF-8": (b'{"body":"\xff"}', "not_text"),
    "surrogate in UTF-8": (b'{"body":"\xed\xa0\x80"}', "not_text"),
    "lone surrogate": (rb'{"body":"\ud800"}', "not_text"),
    "lone surrogate, then more": (rb'{"body":"\ud800x","count":1}', "not_text"),
    "lone surrogate in a name": (rb'{"body":{"\udfff":1}}', "not_text"),
    "NaN": (b'{"body":NaN}', "not_a_number"),
    "infinity": (b'{"body":[-Infinity]}', "not_a_number"),
    "too large a number": (b'{"body":1e999}', "not_a_number"),
    "too many digits": (b'{"body":' + b"9" * 5_000 + b"}", "not_a_number"),
    "member twice": (b'{"body":1,"body":1}', "duplicate_member"),
    "inner member twice": (b'{"body":{"a":1,"b":{"x":1,"x":2}}}', "duplicate_member"),
    "member twice, once escaped": (rb'{"body":1,"\u0062ody":2}', "duplicate_member"),
    "member twice, and a colon": (rb'{"body":{"a":1,"a":"\u003a"}}', "duplicate_member"),
    "member twice, and wrong": (b'{"body":1,"body":1,"count":"x"}', "duplicate_member"),
    "member twice, of the same length": (
        b'{"body":1,"name":"' + b"x" * 11 + b'","name":null}',
        "duplicate_member",
    ),
    "too deep": (b'{"body":' + b"[" * (DEEP + 1) + b"]" * (DEEP + 1) + b"}", "too_deep"),
    "objects too deep": (b'{"body":' + b'{"a":' * DEEP + b"{}" + b"}" * DEEP + b"}", "too_deep"),
    "much too deep": (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
    "much too deep, and cut off": (b"[" * 100_000, "too_deep"),
    "too deep, and words in it": (b"[x" * DEEP * 2 + b"]" * DEEP * 2, "too_deep"),
    "too deep, beside texts": (
        b'{"body":["]]\\\\",' + b"[" * DEEP + b"]" * DEEP + b"]}",
        "too_deep",
    ),
    "wrong type": (b'{"body":1,"count":"1"}', "wrong_type"),
    "no whole number": (b'{"body":1,"count":1.5}', "wrong_type"),
    "an array": (b"[1]", "wrong_type"),
    "null": (b"null", "wrong_type"),
    "unknown member": (b'{"body":1,"other":2}', "unknown_member"),
    "unknown member with a long name": (
        b'{"body":1,"' + b"x" * 100_000 + b'":2}',
        "unknown_member",
    ),
    "missing member": (b'{"count":1}', "missing_member"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_body_is_refused_with_the_code_of_its_fault(what: str) -> None:
    raw, expected = BAD[what]
    assert code(raw) == expected


def test_what_the_decoder_alone_refuses_is_refused() -> None:
    def no(type_: type, value: object) -> object:
        raise msgspec.DecodeError("not like that")

    with pytest.raises(BadInput, match="not like that") as refused:
        parse_by(msgspec.json.Decoder(complex, dec_hook=no), b"1")
    assert refused.value.code == "not_json"


def test_of_a_long_name_the_beginning_is_told() -> None:
    with pytest.raises(BadInput) as refused:
        parse(b'{"body":1,"' + b"x" * 1_000 + b'":2}', Thing)
    assert len(refused.value.message) == 300


def test_a_member_that_is_missing_unknown_or_there_twice_is_named() -> None:
    with pytest.raises(BadInput, match="the object lacks the member `body`"):
        parse(b'{"count":1}', Thing)
    with pytest.raises(BadInput, match="the object contains unknown member `other`"):
        parse(b'{"body":1,"other":2}', Thing)
    with pytest.raises(BadInput, match=r"`[$][.]key_fields`"):
        parse(b'{"key_fields":1}', QueueSettingsView)
    with pytest.raises(BadInput, match="the member 'b' occurs twice"):
        parse(b'{"body":{"a":1,"b":2,"b":3}}', Thing)


GOOD = {
    "compact": b'{"body":{"a":[1,2,{"b":null}]},"count":3}',
    "with spaces": b' { "body" : [ 1 , 2 ] }\r\n',
    "in another order": b'{"count":3,"body":1}',
    "default said": b'{"body":1,"count":0,"name":null}',
    "escapes": rb'{"body":"\u0041\u00e9\ud83d\ude00\n\"\\"}',
    "colons in texts": b'{"body":{"a:b":"::","c":":"}}',
    "escaped colon": rb'{"body":"\u003a"}',
    "large number": b'{"body":123456789012345678901234567890}',
    "other ways to write numbers": b'{"body":[1e2,1.50,-0,1E-999]}',
    "as deep as it may be": b'{"body":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "wide": b'{"body":[' + b"[]," * 500 + b"[]]}",
    "brackets in texts": b'{"body":"' + b"[{" * 200 + b'"}',
    "quotes and brackets in texts": b'{"body":["' + rb"\"[\\" * 200 + b'"]}',
    "a quote and brackets in a text": b'{"body":"\\"' + b"[" * 200 + b"]" * 200 + b'"}',
    "NUL": rb'{"body":"\u0000"}',
}


@pytest.mark.parametrize("what", GOOD)
def test_a_good_body_is_what_json_says(what: str) -> None:
    raw = GOOD[what]
    assert msgspec.to_builtins(parse(raw, Thing).body) == json.loads(raw)["body"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.floats(-9e9, 9e9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_whatever_is_json_passes_however_it_is_written(
    body: Any, escaped: bool, indent: int | None
) -> None:
    raw = json.dumps({"body": body}, ensure_ascii=escaped, indent=indent).encode()
    assert parse(raw, Thing).body == json.loads(raw)["body"]


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1, max_size=4), JSON, st.data())
def test_a_member_that_is_there_twice_is_always_found(
    members: dict[str, Any], other: Any, data: st.DataObject
) -> None:
    pairs = [*members.items(), (data.draw(st.sampled_from(sorted(members))), other)]
    pairs = data.draw(st.permutations(pairs))
    inner = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    assert code(f'{{"body":{{{inner}}}}}'.encode()) == "duplicate_member"


def test_many_members_of_which_one_is_there_twice_are_told_of_quickly() -> None:
    members = ",".join(f'"m{number}":0' for number in range(50_000))
    # Looking for each among all others would take minutes.
    assert code(f'{{"body":{{{members},"m49999":1}}}}'.encode()) == "duplicate_member"


def test_a_struct_that_would_hide_lost_members_cannot_be_a_body() -> None:
    class Careless(msgspec.Struct):
        count: int = 0

    with pytest.raises(AssertionError):
        parse(b"{}", Careless)
