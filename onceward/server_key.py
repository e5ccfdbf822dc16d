"""Server keys: sign sessions and encrypt stored secrets.

A copy of the database alone reveals no secret and forges no session.

The first key encrypts and signs, and all keys decrypt and verify, so that a key can be replaced. A
key has 32 random bytes. A separate key is derived from it for each purpose. Each text is encrypted
by AES-256-GCM with its own key and nonce, derived from 24 random bytes (as in XAES-256-GCM), so the
number of texts is not limited. The location of the text is authenticated: after a move to another
record or field, it cannot be decrypted.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from onceward import ids, keys
from onceward.errors import OncewardError, SecretUnreadable
from onceward.extras import missing

KEY_BYTES = 32
_SALT_BYTES = 12
_NONCE_BYTES = 12
_FORM = "enc1"


class ServerKey(NamedTuple):
    """One key, as the values derived from it."""

    id: str
    """Its name in ciphertexts, logs and the database; reveals nothing of the key."""
    check: str
    """Distinguishes it from another key with the same id."""
    encrypting: bytes
    signing: bytes

    @classmethod
    def of(cls, key: bytes) -> "ServerKey":
        if len(key) != KEY_BYTES:
            raise _bad()
        id_, check = (_derived(key, purpose).hex() for purpose in ("id", "check"))
        return cls(id_[:8], check[:32], _derived(key, "encrypt"), _derived(key, "sign"))


class ServerKeys:
    """The server keys of a node. The first one encrypts and signs. Without keys, every use raises
    `no_server_key`."""

    def __init__(
        self,
        given: Iterable[bytes] = (),
        random_bytes: Callable[[int], bytes] = ids.random_bytes,
    ) -> None:
        """Raises `bad_settings` for a key of another length."""
        self._keys = {key.id: key for key in map(ServerKey.of, given)}
        self._random_bytes = random_bytes

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def checks(self) -> dict[str, str]:
        """The check values by key id, starting with the first key."""
        return {key.id: key.check for key in self._keys.values()}

    def encrypt(self, text: str, *place: str) -> str:
        """Encrypt a text for a location: the words of a record's key and the name of the field."""
        key = self._first()
        drawn = self._random_bytes(_SALT_BYTES + _NONCE_BYTES)
        cipher = _cipher(key, drawn[:_SALT_BYTES])
        sealed = cipher.encrypt(drawn[_SALT_BYTES:], text.encode(), _bound(key.id, place))
        return f"{_FORM}.{key.id}.{urlsafe_b64encode(drawn + sealed).decode()}"

    def decrypt(self, sealed: str, *place: str) -> str:
        """Decrypt a text of a location. Raises `SecretUnreadable` if its key is missing, or it was
        changed or moved."""
        form, _, rest = sealed.partition(".")
        id_, _, encoded = rest.partition(".")
        key = self._keys.get(id_) if form == _FORM else None
        if key is None:
            raise SecretUnreadable(
                f"the secret is encrypted with the server key {id_[:8]!a}, which this server "
                "lacks; add that key to ONCEWARD_SERVER_KEY_FILE, or write the secret again",
                key=id_[:8],
            )
        try:
            raw = urlsafe_b64decode(encoded)
            salt, nonce = raw[:_SALT_BYTES], raw[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
            cipher = _cipher(key, salt)
            text: bytes = cipher.decrypt(nonce, raw[len(salt + nonce) :], _bound(id_, place))
        except (BadBase64, ValueError, _invalid_tag()) as error:
            raise SecretUnreadable(
                f"an encrypted text for {'/'.join(place)!a} was changed or moved; write the "
                "secret again",
                key=id_,
            ) from error
        return text.decode()

    def is_current(self, sealed: str) -> bool:
        """Whether a text is encrypted with the first key."""
        return sealed.startswith(f"{_FORM}.{self._first().id}.")

    def sign(self, purpose: str, text: str) -> str:
        """The signature of a text with the first key, as hex digits."""
        return _signature(self._first(), purpose, text)

    def verify(self, purpose: str, text: str, signature: str) -> bool:
        """Whether the signature of a text is valid for any of the keys."""
        self._first()
        given = signature.encode(errors="replace")
        return any(
            hmac.compare_digest(_signature(key, purpose, text).encode(), given)
            for key in self._keys.values()
        )

    def _first(self) -> ServerKey:
        for key in self._keys.values():
            return key
        raise OncewardError(
            "a server key is needed to sign and encrypt; set ONCEWARD_SERVER_KEY_FILE, or start "
            "the application, which generates a key",
            code="no_server_key",
        )


def new_key(random_bytes: Callable[[int], bytes] = ids.random_bytes) -> str:
    """A new key as text: 64 hex digits."""
    return random_bytes(KEY_BYTES).hex()


def parse_keys(texts: Iterable[str]) -> list[bytes]:
    """Parse keys from lines of text: each has 64 hex digits, or is base64 of 32 bytes; `#` starts a
    comment. Raises `bad_settings`, without quoting a key."""
    lines = (line.partition("#")[0].strip() for text in texts for line in text.splitlines())
    return [_parse(word) for line in lines for word in line.replace(",", " ").split()]


def _parse(text: str) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        key = urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "==")
    except ValueError:
        raise _bad() from None
    if len(key) != KEY_BYTES:
        raise _bad()
    return key


def _bad() -> OncewardError:
    return OncewardError(
        f"a server key must have {KEY_BYTES} random bytes, as {2 * KEY_BYTES} hex digits or in "
        "base64; `onceward server-key new` generates one",
        code="bad_settings",
    )


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.digest(key, f"onceward server key {purpose}".encode(), "sha256")


def _signature(key: ServerKey, purpose: str, text: str) -> str:
    signed = f"{purpose}\n{text}".encode(errors="replace")
    return hmac.digest(key.signing, signed, "sha256").hex()


def _bound(id_: str, place: Sequence[str]) -> bytes:
    return f"{_FORM}.{id_}.{keys.join(*place)}".encode()


def _cipher(key: ServerKey, salt: bytes) -> Any:
    try:
        # Imported here, since only stored secrets need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise OncewardError(
            f"secrets of endpoints and headers of timers need {missing(error)}",
            code="bad_settings",
        ) from error
    return AESGCM(hmac.digest(key.encrypting, salt, "sha256"))


def _invalid_tag() -> type[Exception]:
    try:
        from cryptography.exceptions import InvalidTag
    except ModuleNotFoundError:
        return ValueError
    return InvalidTag
