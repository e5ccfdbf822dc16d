"""SNS as Amazon's own library speaks it: the same requests, and the same reading of answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from apps.rps import aws, outgoing
from apps.rps.game import Game
from apps.rps.provider import Reply
from apps.rps.sns import Sns, refused
from onceward.app import App
from onceward.errors import NotDone
from tests.apps.rps.amazon import TOPIC
from tests.apps.rps.fakes import FakeSns, sns_error, standing
from tests.needs import need

KEY = aws.Credentials("AKIDEXAMPLE", "secret", "session")
TO, OURS, TEXT = "+12025550101", "+12025550100", "h\u00e4llo w\u00f6rld & more"
REPLY = Reply(TO, OURS, TEXT)
OPTED_OUT = "Invalid parameter: Phone number is opted out"


def botocore_client(url: str) -> Any:
    """A client of botocore that does not retry."""
    config = need("botocore.config").Config(retries={"total_max_attempts": 1})
    return (
        need("botocore.session")
        .Session()
        .create_client(
            "sns",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id=KEY.key_id,
            aws_secret_access_key=KEY.secret,
            aws_session_token=KEY.session,
            config=config,
        )
    )


class Both:
    """One SNS, and two clients of it."""

    def __init__(self, sns: FakeSns, ours: Sns, theirs: Any) -> None:
        self.sns = sns
        self.ours = ours
        self._theirs = theirs

    async def publish(self) -> Any:
        """What botocore answers to the same text."""
        values = {"AWS.SNS.SMS.SMSType": "Transactional", "AWS.MM.SMS.OriginationNumber": OURS}
        attributes = {
            name: {"DataType": "String", "StringValue": value} for name, value in values.items()
        }
        return await asyncio.to_thread(
            self._theirs.publish, PhoneNumber=TO, Message=TEXT, MessageAttributes=attributes
        )

    async def refusal(self, answer: Callable[[Any], Any]) -> dict[str, str]:
        """The error that botocore reads from an answer."""
        self.sns.answers = [answer]
        with pytest.raises(need("botocore.exceptions").ClientError) as caught:
            await self.publish()
        error: dict[str, str] = caught.value.response["Error"]
        return error


@asynccontextmanager
async def both() -> AsyncIterator[Both]:
    async with standing(FakeSns()) as sns:
        client = await asyncio.to_thread(botocore_client, sns.url)
        ours = Sns(KEY, "us-east-1", [TOPIC], api=sns.url + "/")
        Game(app := App("memory://"), [ours])
        async with app:
            yield Both(sns, ours, client)


async def test_a_text_is_published_as_by_amazons_own_client() -> None:
    async with both() as clients:
        assert await clients.ours.send("id", REPLY) == {"id": "m1"}
        assert (await clients.publish())["MessageId"] == "m2"
        [(*ours, own_headers, own_form), (*theirs, headers, form)] = clients.sns.requests
        assert ours == theirs
        assert own_form == form
        for name in ("content-type", "host", "x-amz-security-token"):
            assert own_headers[name] == headers[name]
        # At the same time it would have had the same signature.
        at = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        signed = aws.sign(
            KEY,
            "POST",
            clients.sns.url + "/",
            {"Content-Type": own_headers["content-type"]},
            urlencode(own_form).encode(),
            region="us-east-1",
            service="sns",
            now_ms=int(at.timestamp()) * 1_000,
        )
        assert signed["Authorization"] == headers["authorization"]


async def test_a_throttled_text_is_to_be_sent_again() -> None:
    async with both() as clients:
        for status, code in ((400, "Throttled"), (400, "Throttling"), (503, "ServiceUnavailable")):
            answer = sns_error(status, code, "Rate exceeded")
            error = await clients.refusal(answer)
            assert (error["Code"], error["Message"]) == (code, "Rate exceeded")
            clients.sns.answers = [answer]
            with pytest.raises(NotDone, match=rf"Rate exceeded \({code}\)"):
                await clients.ours.send("id", REPLY)


@pytest.mark.parametrize(
    ("code", "message"),
    [("OptedOut", "because"), ("InvalidParameter", OPTED_OUT)],
)
async def test_a_phone_that_has_opted_out_gets_no_more_texts(code: str, message: str) -> None:
    async with both() as clients:
        answer = sns_error(400, code, message)
        error = await clients.refusal(answer)
        assert (error["Code"], error["Message"]) == (code, message)
        clients.sns.answers = [answer]
        result = await clients.ours.send("id", REPLY)
        assert (result["refused"], result["opted_out"]) == (code, True)
        assert message in result["said"]


async def test_an_error_message_with_markup_is_read_as_it_was_meant() -> None:
    async with both() as clients:
        answer = sns_error(400, "InvalidParameter", "the number &lt;1&gt; &amp; more")
        error = await clients.refusal(answer)
        clients.sns.answers = [answer]
        result = await clients.ours.send("id", REPLY)
        assert error["Message"] == "the number <1> & more"
        assert error["Message"] in result["said"]


def test_every_code_that_botocore_retries_is_retried() -> None:
    checker = need("botocore.retries.standard").ThrottledRetryableChecker
    transient = need("botocore.retries.standard").TransientRetryableChecker
    codes = [*checker._THROTTLED_ERROR_CODES, *transient._TRANSIENT_ERROR_CODES]
    assert {"Throttling", "RequestTimeout"} <= set(codes)
    for code in codes:
        with pytest.raises(NotDone, match=code):
            refused(outgoing.Answer(400, b"", None), code, "because")
