"""Settings of credit intake: CREDIT_… in the environment."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from apps.credit.decision import Decide
from apps.credit.record_id import long_id
from onceward import BadInput, OncewardError, limits

PREFIX = "CREDIT_"
SECRET_CHARS_MIN = 16
_LISTS = ("organisations", "certificates")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sources of messages, and the targets of pulls and results."""

    database: str = "sqlite:///credit.db"
    organisations: tuple[str, ...]
    """Ids of the organisations whose messages are accepted."""
    secret: str = ""
    """The last part of the endpoint's path, a secret shared with the sender."""
    certificates: tuple[str, ...] = ()
    """SHA-256 fingerprints of accepted client certificates."""
    certificate_header: str = "x-client-certificate-sha256"
    """The header in which the TLS proxy sends the fingerprint. It must remove that header from
    requests of clients. The server accepts it only from addresses in its setting `proxies`."""
    bureau: str
    """The URL for pulls."""
    bureau_authorization: str = ""
    """The header Authorization of these requests, as in `Bearer …`; omitted if empty."""
    bureau_keys: bool = False
    """Whether the bureau supports idempotency keys."""
    bureau_timeout_s: Annotated[float, Meta(gt=0, le=limits.DELAY_S_MAX)] = 600.0
    salesforce: str
    """The URL for results."""
    salesforce_authorization: str = ""
    decide: str = ""
    """The function that decides, as `module:function`; see `decision.Decide`."""
    work: bool = True
    """Whether this process pulls and delivers; otherwise it only receives messages."""
    lease_s: Annotated[float, Meta(gt=0, le=limits.LEASE_MS_MAX / 1000)] = 60.0
    concurrency: Annotated[int, Meta(ge=1)] = 8
    """The maximum number of concurrent pulls of a process."""
    retry_first_s: Annotated[float, Meta(gt=0)] = 1.0
    slots: int = limits.SLOTS_DEFAULT
    """For a new database."""
    name: str = "credit"
    node_lease_s: float = limits.NODE_LEASE_MS / 1000

    @property
    def drain_s(self) -> float:
        """How long pulls may take to finish when the process stops. Without keys an interrupted
        request is in doubt, so it is the maximum duration of a pull."""
        return limits.DRAIN_S if self.bureau_keys else max(limits.DRAIN_S, self.bureau_timeout_s)


def load(environment: Mapping[str, str]) -> Settings:
    """Read the settings from an environment. Raises `bad_settings` with the names of the
    variables."""
    values: dict[str, object] = {}
    for variable, text in environment.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            parts = [part.strip() for part in text.split(",") if part.strip()]
            values[name] = parts if name in _LISTS else text
    known = {field.name: field.required for field in msgspec.structs.fields(Settings)}
    if unknown := values.keys() - known:
        raise _wrong(f"unknown setting {_variables(sorted(unknown))}")
    if missing := [name for name, required in known.items() if required and name not in values]:
        raise _wrong(f"set {_variables(missing)}")
    try:
        return admit(msgspec.convert(values, Settings, strict=False))
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at `$.")
        name = where.split("`")[0].split("[")[0]
        raise _wrong(f"{_variables([name])}: {why[0].lower()}{why[1:]}") from error


def admit(settings: Settings) -> Settings:
    """Validate the settings, and convert ids to their long form. Raises `bad_settings`."""
    if not settings.secret and not settings.certificates:
        both = _variables(["secret", "certificates"])
        raise _wrong(f"anyone could send messages; set one of {both}")
    if settings.secret and not (
        len(settings.secret) >= SECRET_CHARS_MIN and settings.secret.isalnum()
    ):
        raise _wrong(f"{PREFIX}SECRET must have at least {SECRET_CHARS_MIN} letters and digits")
    if not settings.organisations:
        raise _wrong(f"set {PREFIX}ORGANISATIONS to the organisations whose messages are accepted")
    try:
        organisations = tuple(long_id(id_) for id_ in settings.organisations)
    except BadInput as error:
        raise _wrong(f"{PREFIX}ORGANISATIONS: {error.message}") from error
    certificates = tuple(_plain(digits) for digits in settings.certificates)
    for digits in certificates:
        if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
            raise _wrong(
                f"{PREFIX}CERTIFICATES: each must be the 64 hex digits of a SHA-256 fingerprint"
            )
    for name in ("bureau", "salesforce"):
        if not _is_url(getattr(settings, name)):
            raise _wrong(f"{_variables([name])} must be a URL, as in https://example.com/pulls")
        said = getattr(settings, f"{name}_authorization")
        if not (said.isascii() and said.isprintable()):
            raise _wrong(f"{_variables([f'{name}_authorization'])} must be printable ASCII")
    return msgspec.structs.replace(settings, organisations=organisations, certificates=certificates)


def load_decide(path: str) -> Decide:
    """Import the function `module:function`. Raises `bad_settings`."""
    variable = _variables(["decide"])
    if not path:
        raise _wrong(
            f"set {variable} to your function for decisions, as in rules:decide. The example is "
            "apps.credit.decision:decide"
        )
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(f"{variable}: cannot load {path!r}: {error}") from error
    if not callable(found):
        raise _wrong(f"{variable}: {path!r} is not a function")
    function: Decide = found
    return function


def _is_url(text: str) -> bool:
    """Whether a URL is valid, checked at the start rather than at each pull."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _variables(names: Iterable[str]) -> str:
    """The names of settings in the environment."""
    return ", ".join(f"{PREFIX}{name.upper()}" for name in names)


def _plain(fingerprint: str) -> str:
    return fingerprint.replace(":", "").lower()


def _wrong(why: str) -> OncewardError:
    return OncewardError(f"invalid settings of credit intake: {why}", code="bad_settings")
