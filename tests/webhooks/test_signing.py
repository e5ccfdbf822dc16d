import base64
import json
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from onceward import limits
from onceward.clock import Clock
from onceward.errors import BadInput
from onceward.ids import Ids
from onceward.webhooks.signing import PREFIX, admit_secret, headers, new_secret

IDS = Ids(Clock().now_ms)
MESSAGE = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"

keys = st.binary(min_size=limits.SECRET_BYTES_MIN, max_size=limits.SECRET_BYTES_MAX)


def now_s() -> int:
    """The verifier reads the wall clock, and takes what is at most five minutes off."""
    return Clock().now_ms() // 1000


def written(key: bytes) -> str:
    return PREFIX + base64.b64encode(key).decode()


def verifies(secret: str, body: bytes, signed: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, signed, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def test_the_example_of_the_specification_is_signed_as_it_says() -> None:
    # https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    signed = headers(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signed == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(key=keys, value=st.text())
def test_the_reference_library_verifies_what_is_signed(key: bytes, value: str) -> None:
    secret = admit_secret(written(key))
    body = json.dumps({"value": value}, ensure_ascii=False).encode()
    signed = headers([secret], IDS.new(), now_s(), body)
    assert Webhook(secret).verify(body, signed) == {"value": value}


@given(key=keys, other=keys, body=st.text(min_size=1))
def test_another_secret_body_or_id_does_not_verify(key: bytes, other: bytes, body: str) -> None:
    secret, raw = written(key), body.encode()
    signed = headers([secret], MESSAGE, now_s(), raw)
    assert verifies(secret, raw, signed)
    assert not verifies(secret, raw + b" ", signed)
    assert not verifies(secret, raw, {**signed, "webhook-id": MESSAGE + "x"})
    assert not verifies(secret, raw, {**signed, "webhook-timestamp": str(now_s() - 60)})
    if other != key:
        assert not verifies(written(other), raw, signed)


def test_while_secrets_change_either_of_them_verifies() -> None:
    old, new, stranger = (new_secret(IDS) for _ in range(3))
    signed = headers([new, old], MESSAGE, now_s(), b"{}")
    assert re.fullmatch(r"v1,\S{44} v1,\S{44}", signed["webhook-signature"])
    assert verifies(old, b"{}", signed)
    assert verifies(new, b"{}", signed)
    assert not verifies(stranger, b"{}", signed)


def test_without_a_secret_there_is_no_signature() -> None:
    signed = headers([], MESSAGE, 17, b"{}")
    assert signed == {"webhook-id": MESSAGE, "webhook-timestamp": "17"}


def test_new_secrets_differ_and_are_admitted_as_they_are() -> None:
    made = {new_secret(IDS) for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert admit_secret(secret) == secret
        assert len(base64.b64decode(secret.removeprefix(PREFIX))) == limits.SECRET_BYTES


def test_a_secret_is_made_of_the_given_randomness() -> None:
    numbers = count()
    ids = Ids(lambda: 0, lambda size: bytes([next(numbers)]) * size)
    assert [new_secret(ids), new_secret(ids)] == [written(b"\0" * 32), written(b"\1" * 32)]


@given(key=keys)
@example(key=base64.b64decode("A" * 31 + "x"))
def test_padding_may_be_missing_and_is_stored(key: bytes) -> None:
    assert admit_secret(written(key).rstrip("=")) == written(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PREFIX,
        written(b"x" * 32).removeprefix(PREFIX),
        "WHSEC_" + "A" * 43,
        written(b"x" * (limits.SECRET_BYTES_MIN - 1)),
        written(b"x" * (limits.SECRET_BYTES_MAX + 1)),
        written(b"x" * 32) + "\n",
        " " + written(b"x" * 32),
        PREFIX + "A" * 20 + " " + "A" * 23,
        PREFIX + "A" * 20 + "\u00e9" + "A" * 23,
        PREFIX + "A" * 33,  # no number of bytes has so many characters
        PREFIX + "_-" * 20,  # the alphabet for URLs, which the reference library misreads
        PREFIX + "=" + "A" * 43,
        *(None, 5, b"whsec_" + b"A" * 43, ["whsec_"]),
    ],
)
def test_what_is_no_secret_is_refused(text: Any) -> None:
    with pytest.raises(BadInput) as refused:
        admit_secret(text)
    assert refused.value.code == "bad_secret"


@pytest.mark.parametrize("id_", ["", "a.b", "a b", "a\r\nx: y", "é", "x" * 257])
def test_an_id_that_could_be_misread_is_refused(id_: str) -> None:
    with pytest.raises(BadInput, match="invalid message id") as refused:
        headers([], id_, 0, b"")
    assert refused.value.code == "bad_header"


def test_an_id_may_have_256_characters_of_any_kind_that_cannot_be_misread() -> None:
    for id_ in ("x" * 256, "!-/~"):
        assert headers([], id_, 0, b"")["webhook-id"] == id_


def test_more_secrets_than_ever_needed_are_refused() -> None:
    secrets = [new_secret(IDS) for _ in range(limits.SECRETS_MAX + 1)]
    with pytest.raises(BadInput, match="secrets that sign") as refused:
        headers(secrets, MESSAGE, 0, b"")
    assert refused.value.code == "bad_secret"
    signed = headers(secrets[1:], MESSAGE, 0, b"")
    assert signed["webhook-signature"].count("v1,") == limits.SECRETS_MAX
