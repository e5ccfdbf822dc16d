"""Portal tokens: access to the calls of one endpoint, for its owner, without an account.

A token is signed with the server key and expires. The endpoint has a number, which a token repeats:
revoking the tokens of an endpoint changes the number.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.server_key import ServerKeys
from onceward.tokens import Grant
from onceward.web.auth import Access, PortalPass
from onceward.web.grants import Grants

PREFIX = "owp_"
_PURPOSE = "portal"
# No issuer can have this label, so no other caller has this identity.
_ISSUER = "~portal"


def sign(server_keys: ServerKeys, given: PortalPass) -> str:
    text = urlsafe_b64encode(msgspec.json.encode(given)).decode()
    return f"{PREFIX}{text}.{server_keys.sign(_PURPOSE, text)}"


def read(server_keys: ServerKeys, token: str, now_ms: int) -> Access:
    """The access that a token gives. Raises `no_credentials`, `token_expired`."""
    text, _, mark = token.removeprefix(PREFIX).partition(".")
    if not server_keys.verify(_PURPOSE, text, mark):
        raise BadInput("this portal link is not valid; ask for a new one", code="no_credentials")
    given = msgspec.json.decode(urlsafe_b64decode(text), type=PortalPass)
    if given.until_ms <= now_ms:
        raise BadInput("this portal link has expired; ask for a new one", code="token_expired")
    return Access(
        Caller("user", _ISSUER, f"{given.caller}/{given.endpoint}"),
        Grants(frozenset({Grant("portal", given.endpoint)})),
        given.until_ms,
        portal=given,
    )
