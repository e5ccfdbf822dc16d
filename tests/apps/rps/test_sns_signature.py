"""What Amazon has signed is told from what others say, by what was signed and with which key."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apps.rps.sns_signature import (
    Envelope,
    insist_amazon,
    insist_certificate,
    text_of,
    verify,
)
from onceward.errors import BadInput
from tests.apps.rps import amazon
from tests.apps.rps.amazon import CERTIFICATE, confirmation, notification, signed

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
BEGINS_MS = int(BEGINS.timestamp() * 1_000)
DAYS = 2
ENDS_MS = BEGINS_MS + DAYS * 86_400_000
HOST = "https://sns.eu-central-1.amazonaws.com"


def read(message: dict[str, Any]) -> Envelope:
    return msgspec.convert(message, Envelope)


def refused(message: dict[str, Any], certificate: bytes, now_ms: int = BEGINS_MS) -> str:
    """Why a message is taken to be someone else's."""
    with pytest.raises(BadInput) as error:
        verify(read(message), certificate, now_ms)
    assert error.value.code == "not_allowed"
    return error.value.message


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "message",
    [
        notification("nick Ann"),
        notification("nick Ann", Subject="two-way"),
        notification("nick Zo\u00eb"),
        confirmation(),
        confirmation("UnsubscribeConfirmation"),
    ],
)
def test_what_amazon_has_signed_is_known_and_every_change_to_it(
    message: dict[str, Any], version: str
) -> None:
    certificate = amazon.certificate(BEGINS, DAYS)
    right = signed(message, version)
    verify(read(right), certificate, BEGINS_MS)
    names = amazon.NOTIFICATION if message["Type"] == "Notification" else amazon.CONFIRMATION
    for name in names:
        if name != "Type":
            changed = {**right, name: right.get(name, "") + "x"}
            assert "the signature does not match" in refused(changed, certificate), name
    other = {"1": "2", "2": "1"}[version]
    assert "does not match" in refused({**right, "SignatureVersion": other}, certificate)


def test_what_is_signed_are_names_and_values_in_the_order_of_names() -> None:
    message = {
        "Type": "Notification",
        "MessageId": "m",
        "TopicArn": "arn",
        "Message": "Zo\u00eb",
        "Timestamp": "now",
        "SignatureVersion": "2",
        "Signature": "",
        "SigningCertURL": "",
    }
    begins, ends = "Message\nZo\u00eb\nMessageId\nm\n", "Timestamp\nnow\nTopicArn\narn\nType\n"
    assert text_of(read(message)).decode() == f"{begins}{ends}Notification\n"
    with_subject = {**message, "Subject": "s"}
    assert text_of(read(with_subject)).decode() == f"{begins}Subject\ns\n{ends}Notification\n"
    asked = {**message, "Type": "SubscriptionConfirmation"}
    told = text_of(read({**asked, "SubscribeURL": "u", "Token": "t"})).decode()
    assert told == (
        f"{begins}SubscribeURL\nu\nTimestamp\nnow\nToken\nt\nTopicArn\narn\nType\n{asked['Type']}\n"
    )
    # What is missing is as if it were empty.
    assert "SubscribeURL\n\nTimestamp\nnow\nToken\n\nTopicArn" in text_of(read(asked)).decode()


def test_a_type_or_version_that_is_not_known_is_refused() -> None:
    certificate, right = amazon.certificate(BEGINS, DAYS), signed(notification("top"))
    assert "unknown type 'Other'" in refused({**right, "Type": "Other"}, certificate)
    told = refused({**right, "SignatureVersion": "3"}, certificate)
    assert "unknown signature version '3'" in told


def test_a_signature_that_is_not_plain_base64_is_refused() -> None:
    certificate, right = amazon.certificate(BEGINS, DAYS), signed(notification("top"))
    for signature in ("?", "\u00e4", right["Signature"] + "\n", "?" + right["Signature"]):
        refused({**right, "Signature": signature}, certificate)
    empty = base64.b64encode(b"").decode()
    assert "does not match" in refused({**right, "Signature": empty}, certificate)


def test_a_certificate_is_valid_from_its_first_moment_to_its_last() -> None:
    certificate, right = amazon.certificate(BEGINS, DAYS), signed(notification("top"))
    for now_ms in (BEGINS_MS, ENDS_MS):
        verify(read(right), certificate, now_ms)
    for now_ms in (BEGINS_MS - 1, ENDS_MS + 1):
        assert "not valid at this time" in refused(right, certificate, now_ms)


def test_what_is_no_certificate_or_has_another_kind_of_key_is_refused() -> None:
    right = signed(notification("top"))
    for certificate in (b"", b"-----BEGIN CERTIFICATE-----\n"):
        refused(right, certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, BEGINS, BEGINS + timedelta(1))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    assert "no RSA key" in refused(right, pem)


@pytest.mark.parametrize(
    "url", [f"{HOST}/", f"{HOST}:443/?Action=ConfirmSubscription", "https://sns.x.amazonaws.com"]
)
def test_addresses_of_sns_are_known(url: str) -> None:
    insist_amazon(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "https://", "https:///x", "https://[::1/", "https://evil.example/"),
        HOST.replace("https", "http"),
        *(f"{HOST}:8443/", f"{HOST}:80/", f"{HOST}:444/", f"{HOST}:x/"),
        *(f"{HOST}.evil.example/", f"{HOST}x/", HOST.replace("sns", "s3")),
        HOST.replace("//", "//evil."),
        HOST.replace("//", "//user@"),
        f"{HOST}@evil.example/",
        HOST.replace("eu-central-1", "a.b"),
        HOST.replace("eu-central-1", "a" * 41),
        *(f"{HOST}/\\", f"{HOST}/\u00e4", f"{HOST}/\n", f"{HOST}/\t"),
    ],
)
def test_addresses_of_others_are_refused(url: str) -> None:
    with pytest.raises(BadInput) as error:
        insist_amazon(url)
    assert error.value.code == "not_allowed"


def test_certificates_of_sns_have_addresses_of_their_own() -> None:
    for url in (CERTIFICATE, CERTIFICATE.replace(".com", ".com:443")):
        insist_certificate(url)
    for url in (f"{HOST}/x.pem", CERTIFICATE + "x", CERTIFICATE.replace("-0", "-0g")):
        with pytest.raises(BadInput) as error:
            insist_certificate(url)
        assert error.value.code == "not_allowed"


def test_of_long_nonsense_only_the_beginning_is_told() -> None:
    long = "7" * 200
    with pytest.raises(BadInput, match=r"'7{100}'"):
        insist_certificate(long)
    right = signed(notification("top"))
    certificate = amazon.certificate(BEGINS, DAYS)
    for name in ("Type", "SignatureVersion"):
        assert f"'{long[:40]}'" in refused({**right, name: long}, certificate)
