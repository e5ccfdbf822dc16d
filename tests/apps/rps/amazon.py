"""Amazon's side of SNS: a certificate, and messages signed with it."""

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

TOPIC = "arn:aws:sns:us-east-1:123456789012:texts"
CERTIFICATE = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem"
SUBSCRIBE = (
    "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=x&Token=2336412f"
)
# Which members are signed, as Amazon documents it; in this order.
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = (
    *("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
)


@cache
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def certificate(valid_from: datetime, days: int = 365) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key().public_key())
        .serial_number(1)
        .not_valid_before(valid_from)
        .not_valid_after(valid_from + timedelta(days=days))
        .sign(key(), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def moment(now_ms: int, days: int = 0) -> datetime:
    return datetime.fromtimestamp(now_ms / 1_000, UTC) + timedelta(days=days)


def signed(message: dict[str, Any], version: str = "2") -> dict[str, Any]:
    """A message with its signature, made here and nowhere else."""
    names = NOTIFICATION if message["Type"] == "Notification" else CONFIRMATION
    text = "".join(f"{name}\n{message[name]}\n" for name in names if name in message)
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()
    signature = key().sign(text.encode(), padding.PKCS1v15(), algorithm)
    return {
        "SigningCertURL": CERTIFICATE,
        **message,
        "SignatureVersion": version,
        "Signature": base64.b64encode(signature).decode(),
    }


def notification(text: str, id_: str = "in-1", **members: Any) -> dict[str, Any]:
    """What a topic says of a text, as AWS documents it."""
    said = {
        "originationNumber": "+12025550101",
        "destinationNumber": "+12025550100",
        "messageKeyword": "KEYWORD_1",
        "messageBody": text,
        "inboundMessageId": id_,
        "previousPublishedMessageId": "wJalrXUtnFEMI",
    }
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Message": json.dumps(said),
        "Timestamp": "2023-11-14T22:13:20.000Z",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
        **members,
    }


def confirmation(type_: str = "SubscriptionConfirmation", **members: Any) -> dict[str, Any]:
    return {
        "Type": type_,
        "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
        "Token": "2336412f37",
        "TopicArn": TOPIC,
        "Message": "You have chosen to subscribe to the topic.",
        "SubscribeURL": SUBSCRIBE,
        "Timestamp": "2023-11-14T22:13:20.000Z",
        **members,
    }
