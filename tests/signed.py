"""Tokens with any time of expiry, as `onceward.tokens` would not sign them."""

from collections.abc import Iterable
from typing import Any

import jwt
import msgspec

from onceward import tokens


def claims(
    user: str, expires_at_s: float, audience: str = "onceward", **names: Iterable[str]
) -> dict[str, Any]:
    """The claims of a token with grants, by action: `read=["board"]`, `all=[""]`."""
    grants = [tokens.Grant(action, name) for action, some in names.items() for name in some]
    details = msgspec.to_builtins(tokens.details(grants))
    return {"sub": user, "exp": expires_at_s, "aud": audience, tokens.CLAIM: details}


def signed(
    secret: str,
    user: str,
    expires_at_s: float = 4_000_000_000,
    audience: str = "onceward",
    **names: Iterable[str],
) -> str:
    return jwt.encode(claims(user, expires_at_s, audience, **names), secret, algorithm="HS256")
