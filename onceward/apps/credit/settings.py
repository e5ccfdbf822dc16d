"""How an installation of credit intake runs: CREDIT_… in the environment."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.apps.credit.record_id import long_id
from onceward.errors import BadInput, OncewardError

PREFIX = "CREDIT_"
SECRET_CHARS_MIN = 16
_LISTS = ("organisations", "certificates")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages come from, and where pulls and results go."""

    database: str = "sqlite:///credit.db"
    organisations: tuple[str, ...]
    """Whose messages are taken, by their ids."""
    secret: str = ""
    """The last part of the endpoint's path, which only the sender knows."""
    certificates: tuple[str, ...] = ()
    """SHA-256 fingerprints of client certificates that are taken."""
    certificate_header: str = "x-client-certificate-sha256"
    """Where the proxy that ends TLS says the fingerprint; it must not let callers say it."""
    bureau: str
    """The URL at which credit is pulled."""
    bureau_keys: bool = False
    """Whether the bureau knows a request again by its idempotency key."""
    bureau_timeout_s: Annotated[float, Meta(gt=0, le=limits.DELAY_S_MAX)] = 600.0
    salesforce: str
    """The URL to which results go."""
    work: bool = True
    """Whether this process pulls and delivers; else it only takes messages in."""
    lease_s: Annotated[float, Meta(gt=0, le=limits.LEASE_MS_MAX / 1000)] = 60.0
    concurrency: Annotated[int, Meta(ge=1)] = 8
    """How many pulls a process makes at once."""
    retry_first_ms: Annotated[int, Meta(ge=1)] = 1_000
    slots: int = limits.SLOTS_DEFAULT
    """Of a database that is made anew."""
    name: str = "credit"
    node_lease_s: float = limits.NODE_LEASE_MS / 1000

    @property
    def drain_s(self) -> float:
        """How long pulls may take to finish when the process stops. A request that is cut off
        is in doubt where the bureau takes no keys: there, as long as one may last."""
        return limits.DRAIN_S if self.bureau_keys else max(limits.DRAIN_S, self.bureau_timeout_s)


def load(environment: Mapping[str, str]) -> Settings:
    """The settings in an environment. Raises `bad_settings`."""
    values: dict[str, object] = {}
    for variable, text in environment.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            parts = [part.strip() for part in text.split(",") if part.strip()]
            values[name] = parts if name in _LISTS else text
    try:
        return admit(msgspec.convert(values, Settings, strict=False))
    except msgspec.ValidationError as error:
        raise _wrong(f"{error} ({PREFIX}… in the environment)") from error


def admit(settings: Settings) -> Settings:
    """The settings, with ids in their long form. Raises `bad_settings` for what cannot be."""
    if not settings.secret and not settings.certificates:
        raise _wrong("anybody could send: set a secret for the path, or certificates")
    if settings.secret and not (
        len(settings.secret) >= SECRET_CHARS_MIN and settings.secret.isalnum()
    ):
        raise _wrong(f"the secret has at least {SECRET_CHARS_MIN} letters and digits")
    if not settings.organisations:
        raise _wrong("name the organisations whose messages are taken")
    try:
        organisations = tuple(long_id(id_) for id_ in settings.organisations)
    except BadInput as error:
        raise _wrong(error.message) from error
    certificates = tuple(_plain(digits) for digits in settings.certificates)
    for digits in certificates:
        if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
            raise _wrong("a certificate is named by the 64 hex digits of its SHA-256 fingerprint")
    return msgspec.structs.replace(settings, organisations=organisations, certificates=certificates)


def _plain(fingerprint: str) -> str:
    return fingerprint.replace(":", "").lower()


def _wrong(why: str) -> OncewardError:
    return OncewardError(f"the settings of credit intake are wrong: {why}", code="bad_settings")
