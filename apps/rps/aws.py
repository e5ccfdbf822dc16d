"""Signature Version 4, for requests to AWS."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Credentials:
    """An access key; with a session token if it is temporary."""

    key_id: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


def sign(
    credentials: Credentials,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    region: str,
    service: str,
    now_ms: int,
) -> dict[str, str]:
    """Return the headers of a request with its date and signature.

    The path is used unchanged, which is sufficient for plain paths of services other than S3.
    """
    at = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    whole = {**headers, "Host": parts.netloc, "X-Amz-Date": at}
    if credentials.session:
        whole["X-Amz-Security-Token"] = credentials.session
    signed = {name.lower(): " ".join(value.split()) for name, value in sorted(whole.items())}
    names = ";".join(sorted(signed))
    query = sorted(
        (_escape(name), _escape(value))
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    request = "\n".join(
        (
            method,
            parts.path or "/",
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    said = "\n".join((_ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in (*scope.split("/"), said):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    whole["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return whole


def _escape(text: str) -> str:
    return quote(text, safe="-_.~")
