"""Verification of Amazon's signatures of messages from a topic.

The message names its certificate, so the URL must be one of SNS's certificates. Other URLs of that
host are not sufficient, since some have contents of users.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from onceward import BadInput

_HOST = re.compile(r"sns\.[a-z0-9-]{1,40}\.amazonaws\.com")
_CERTIFICATE = re.compile(
    r"https://sns\.[a-z0-9-]{1,40}\.amazonaws\.com(:443)?/SimpleNotificationService-[0-9a-f]+\.pem"
)
_HASHES: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303
_CONFIRMATION = (
    *("message", "message_id", "subscribe_url", "timestamp", "token", "topic_arn", "type"),
)
_SIGNED = {
    "Notification": ("message", "message_id", "subject", "timestamp", "topic_arn", "type"),
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}


def _spelled(name: str) -> str:
    """The name of a member in Amazon's spelling."""
    return "".join(word.capitalize() for word in name.split("_")).replace("Url", "URL")


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, rename=_spelled):
    """A message of a topic."""

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    signature_version: str
    signature: str
    signing_cert_url: str
    subject: str | None = None
    subscribe_url: str = ""
    token: str = ""


def insist_amazon(url: str) -> None:
    """Raise `not_allowed` for a URL that is not an https URL of SNS."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme == "https" and parts.port in (None, 443) and "@" not in parts.netloc
        fine = fine and _HOST.fullmatch(parts.hostname or "") is not None
    except ValueError:
        fine = False
    if not fine or "\\" in url or not url.isascii() or not url.isprintable():
        raise BadInput(f"{url[:100]!a} is not a URL of SNS", code="not_allowed")


def insist_certificate(url: str) -> None:
    """Raise `not_allowed` for a URL that is not a certificate of SNS."""
    if not _CERTIFICATE.fullmatch(url):
        raise _unsigned(f"{url[:100]!a} is not the URL of a certificate of SNS")


def text_of(envelope: Envelope) -> bytes:
    """The signed text. Raises `not_allowed` for an unknown type."""
    names = _SIGNED.get(envelope.type)
    if names is None:
        raise _unsigned(f"unknown type {envelope.type[:40]!a}")
    pairs = [(_spelled(name), getattr(envelope, name)) for name in names]
    return "".join(f"{name}\n{value}\n" for name, value in pairs if value is not None).encode()


def verify(envelope: Envelope, certificate: bytes, now_ms: int) -> None:
    """Raise `not_allowed` unless the certificate's owner has signed the message, and the
    certificate is valid at this time."""
    algorithm = _HASHES.get(envelope.signature_version)
    if algorithm is None:
        raise _unsigned(f"unknown signature version {envelope.signature_version[:40]!a}")
    try:
        owner = x509.load_pem_x509_certificate(certificate)
        key = owner.public_key()
        given = base64.b64decode(envelope.signature, validate=True)
    except (ValueError, binascii.Error) as error:
        raise _unsigned(str(error)) from error
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    if not owner.not_valid_before_utc <= now <= owner.not_valid_after_utc:
        raise _unsigned("the certificate is not valid at this time")
    if not isinstance(key, rsa.RSAPublicKey):
        raise _unsigned("the certificate has no RSA key")
    try:
        key.verify(given, text_of(envelope), padding.PKCS1v15(), algorithm)
    except InvalidSignature as error:
        raise _unsigned("the signature does not match") from error


def _unsigned(why: str) -> BadInput:
    return BadInput(f"the message is not signed by Amazon: {why}", code="not_allowed")
