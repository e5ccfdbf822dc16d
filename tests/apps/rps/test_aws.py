"""Requests to AWS are signed as its documentation's examples are."""

from datetime import UTC, datetime
from urllib.parse import urlencode

from apps.rps.aws import Credentials, sign

KEY = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOW_MS = int(datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp() * 1_000)
FORM = "application/x-www-form-urlencoded"


def signature(
    method: str, url: str, headers: dict[str, str], body: bytes = b"", service: str = "service"
) -> str:
    signed = sign(
        KEY, method, url, headers, body, region="us-east-1", service=service, now_ms=NOW_MS
    )
    return signed["Authorization"].partition("Signature=")[2]


def test_the_examples_of_amazons_test_suite_are_signed_alike() -> None:
    url = "https://example.amazonaws.com/"
    assert signature("GET", url, {}) == (
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )
    assert signature("GET", url + "?Param2=value2&Param1=value1", {}) == (
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
    )
    assert signature("POST", url, {"Content-Type": FORM}, b"Param1=value1") == (
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
    )


def test_the_example_of_the_user_guide_is_signed_alike() -> None:
    url = "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08"
    kind = {"Content-Type": f"{FORM}; charset=utf-8"}
    assert signature("GET", url, kind, service="iam") == (
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_a_session_token_is_sent_and_signed() -> None:
    key = Credentials("AKIDEXAMPLE", "secret", "session")
    options = {"region": "us-east-1", "service": "sns", "now_ms": NOW_MS}
    signed = sign(key, "POST", "https://sns.us-east-1.amazonaws.com/", {}, b"", **options)
    assert signed["X-Amz-Security-Token"] == "session"
    assert "x-amz-security-token" in signed["Authorization"]


def test_secrets_are_not_shown() -> None:
    assert "wJalr" not in repr(KEY)


def test_a_text_is_signed_as_amazons_own_library_signs_it() -> None:
    """The signature was made by botocore 1.44, of the same call with the same key and time."""
    form = {"Action": "Publish", "Version": "2010-03-31", "PhoneNumber": "+12025550101"}
    form["Message"] = "h\u00e4llo w\u00f6rld & more"
    for number, name, value in (
        (1, "AWS.SNS.SMS.SMSType", "Transactional"),
        (2, "AWS.MM.SMS.OriginationNumber", "+12025550100"),
    ):
        entry = f"MessageAttributes.entry.{number}"
        form |= {f"{entry}.Name": name, f"{entry}.Value.DataType": "String"}
        form[f"{entry}.Value.StringValue"] = value
    signed = sign(
        Credentials("AKID", "SECRET", "TOK"),
        "POST",
        "https://sns.us-east-1.amazonaws.com/",
        {"Content-Type": f"{FORM}; charset=utf-8"},
        urlencode(form).encode(),
        region="us-east-1",
        service="sns",
        now_ms=int(datetime(2026, 11, 15, 23, 2, 26, tzinfo=UTC).timestamp() * 1_000),
    )
    assert signed["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKID/20261115/us-east-1/sns/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "
        "Signature=fa888ea0a25cbb105c410a4ac6b7617a95a9b5e9413eeeddfebac003c148c07d"
    )
