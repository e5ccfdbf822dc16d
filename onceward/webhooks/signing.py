"""Webhook signatures, after the Standard Webhooks specification (https://www.standardwebhooks.com).

The id, the time and the body are signed. The receiver can verify the sender, the integrity and the
age of a message. During a change of an endpoint's secret, the old and the new one both sign, and
either verifies.
"""

import hmac
import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Sequence

from onceward import limits
from onceward.errors import BadInput
from onceward.ids import Ids

PREFIX = "whsec_"

# No dots, which separate the parts of the signed text, and no characters that end a header.
_MESSAGE_ID = re.compile(rf"[!-\-/-~]{{1,{limits.MESSAGE_ID_CHARS_MAX}}}")


def new_secret(ids: Ids) -> str:
    """Generate a new secret: `whsec_` and random bytes in base64."""
    return _write(bytes.fromhex(ids.token(limits.SECRET_BYTES)))


def admit_secret(text: str) -> str:
    """Return the canonical form of a secret for storage. Raises `BadInput`."""
    if type(text) is not str or not text.startswith(PREFIX):
        raise BadInput(f"a secret must start with {PREFIX}", code="bad_secret")
    # Some tools omit the padding.
    bare = text.removeprefix(PREFIX).rstrip("=")
    try:
        key = a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except (Error, ValueError) as error:
        raise BadInput(f"a secret must be base64 after {PREFIX}", code="bad_secret") from error
    if not limits.SECRET_BYTES_MIN <= len(key) <= limits.SECRET_BYTES_MAX:
        raise BadInput(
            f"a secret must have {limits.SECRET_BYTES_MIN} to {limits.SECRET_BYTES_MAX} bytes "
            f"in base64, not {len(key)}",
            code="bad_secret",
        )
    return _write(key)


def headers(secrets: Sequence[str], id_: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a body: its id, the time, and a signature for each secret.

    `secrets` are in the form that `admit_secret` returns; without any there is no signature. All
    attempts of a message have the same id, and each has its own time.
    """
    if not _MESSAGE_ID.fullmatch(id_):
        raise BadInput(
            f"invalid message id {id_!r}; use printable ASCII without dots", code="bad_header"
        )
    if len(secrets) > limits.SECRETS_MAX:
        raise BadInput(
            f"a message must have at most {limits.SECRETS_MAX} secrets that sign it, not "
            f"{len(secrets)}",
            code="bad_secret",
        )
    made = {"webhook-id": id_, "webhook-timestamp": str(timestamp_s)}
    if secrets:
        signed = f"{id_}.{timestamp_s}.".encode("ascii") + body
        made["webhook-signature"] = " ".join([_sign(secret, signed) for secret in secrets])
    return made


def _sign(secret: str, signed: bytes) -> str:
    digest = hmac.digest(a2b_base64(secret[len(PREFIX) :]), signed, "sha256")
    return "v1," + b2a_base64(digest, newline=False).decode("ascii")


def _write(key: bytes) -> str:
    return PREFIX + b2a_base64(key, newline=False).decode("ascii")
