"""Webhook signatures, after the Standard Webhooks specification (https://www.standardwebhooks.com).

What is signed is the id, the time and the body. Whoever gets it can tell that it comes from one
who knows the secret, that nobody has changed it, and that it is new. While an endpoint's secret
changes, old and new one sign side by side, and either verifies.
"""

import hmac
import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Sequence

from onceward import limits
from onceward.errors import BadInput
from onceward.ids import Ids

PREFIX = "whsec_"

# Without dots, since a dot ends it in what is signed, and without what ends a header.
_MESSAGE_ID = re.compile(rf"[!-\-/-~]{{1,{limits.MESSAGE_ID_CHARS_MAX}}}")


def new_secret(ids: Ids) -> str:
    """A secret nobody has used before: `whsec_` and random bytes in base64."""
    return _write(bytes.fromhex(ids.token(limits.SECRET_BYTES)))


def admit_secret(text: str) -> str:
    """The secret as it is to be stored, the same for all ways to write it. Raises `BadInput`."""
    if type(text) is not str or not text.startswith(PREFIX):
        raise BadInput(f"a secret starts with {PREFIX}", code="bad_secret")
    # Some leave out the padding at the end.
    bare = text.removeprefix(PREFIX).rstrip("=")
    try:
        key = a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except (Error, ValueError) as error:
        raise BadInput(f"a secret is base64 behind {PREFIX}", code="bad_secret") from error
    if not limits.SECRET_BYTES_MIN <= len(key) <= limits.SECRET_BYTES_MAX:
        raise BadInput(
            f"a secret has {limits.SECRET_BYTES_MIN} to {limits.SECRET_BYTES_MAX} bytes "
            f"behind the base64, not {len(key)}",
            code="bad_secret",
        )
    return _write(key)


def headers(secrets: Sequence[str], id_: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers that go with a body: its id, the time, and a signature for each secret.

    The secrets are as `admit_secret` returned them. Without any there is no signature. All
    attempts at one message have its id, and each has its own time.
    """
    if not _MESSAGE_ID.fullmatch(id_):
        raise BadInput(f"{id_!r} cannot be the id of a message", code="bad_header")
    if len(secrets) > limits.SECRETS_MAX:
        raise BadInput(f"at most {limits.SECRETS_MAX} secrets sign at once", code="bad_secret")
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
