"""Outbound messages of Salesforce as SOAP envelopes: strict parsing, and responses.

The reader parses the bytes once, with expat, and keeps only the needed parts. It rejects everything
unexpected at the first occurrence: a DTD (and with it any entity), processing instructions, other
encodings, and too many bytes, elements, attributes or levels. So memory and time are bounded. The
session id, which would allow acting as the sender, is never stored.
"""

from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape

from apps.credit import limits
from apps.credit.errors import BAD_ENVELOPE
from apps.credit.record_id import long_id
from onceward import BadInput, OncewardError

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
OUTBOUND = "http://soap.sforce.com/2005/09/outbound"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
OBJECTS = ("urn:sobject.enterprise.soap.sforce.com", "urn:sobject.partner.soap.sforce.com")
CONTENT_TYPE = b"text/xml; charset=utf-8"

# The separator of expat between namespace and name; no namespace contains it.
_SEPARATOR = " "
_ENVELOPE, _HEADER, _BODY = (f"{SOAP} {name}" for name in ("Envelope", "Header", "Body"))
_NOTIFICATIONS, _NOTIFICATION = f"{OUTBOUND} notifications", f"{OUTBOUND} Notification"
_ID, _OBJECT = f"{OUTBOUND} Id", f"{OUTBOUND} sObject"
_ORGANISATION, _ACTION = f"{OUTBOUND} OrganizationId", f"{OUTBOUND} ActionId"
_SESSION = f"{OUTBOUND} SessionId"
_UNUSED = {_SESSION, f"{OUTBOUND} EnterpriseUrl", f"{OUTBOUND} PartnerUrl"}
_CHILDREN: dict[str, set[str]] = {
    "": {_ENVELOPE},
    _ENVELOPE: {_HEADER, _BODY},
    _BODY: {_NOTIFICATIONS},
    _NOTIFICATIONS: {_ORGANISATION, _ACTION, _NOTIFICATION, *_UNUSED},
    _NOTIFICATION: {_ID, _OBJECT},
}
# The kind of records, and the prefix of their ids.
_KIND, _KIND_PREFIX = "Opportunity", "006"
# The stored size of a field without its name and text.
_FIELD_BYTES = len('"":null,')


@dataclass(slots=True)
class Notification:
    """One changed record."""

    id: str = ""
    """The id of the notification; the same when it is repeated."""
    fields: dict[str, str | None] = field(default_factory=dict)
    """The fields of the record as text; None for nil."""

    @property
    def opportunity(self) -> str:
        """The record's id; each is pulled once."""
        return self.fields["Id"] or ""


@dataclass(slots=True)
class Envelope:
    """The relevant parts of an outbound message."""

    organisation: str = ""
    action: str = ""
    notifications: list[Notification] = field(default_factory=list)


def read(body: bytes) -> Envelope:
    """Parse an envelope. Raises `BadInput` with the code `credit_bad_envelope` for anything
    unexpected."""
    if len(body) > limits.SOAP_BYTES_MAX:
        _refuse(f"an envelope must have at most {limits.SOAP_BYTES_MAX} bytes")
    return _Reader().read(body)


class _Reader:
    """Reads one envelope."""

    def __init__(self) -> None:
        self._parser = parser = expat.ParserCreate("UTF-8", _SEPARATOR)
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.ProcessingInstructionHandler = self._instruction
        parser.StartNamespaceDeclHandler = self._namespace
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        self._open: list[str] = [""]
        self._seen: list[set[str]] = [set()]
        """The names of child elements at each level."""
        self._elements = 0
        self._nil = False
        self._text: list[str] = []
        self._held_bytes = 0
        """The size of names and texts in the current notification."""
        self._envelope = Envelope()
        self._seen_in_envelope: set[str] = set()

    def read(self, body: bytes) -> Envelope:
        try:
            self._parser.Parse(body, True)
        except expat.ExpatError as error:
            _refuse(f"invalid XML: {error}")
        _insist(_BODY in self._seen_in_envelope, "the envelope has no body")
        return self._envelope

    # Callbacks of the parser.

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "us-ascii"):
            _refuse(f"the encoding must be UTF-8, not {encoding[:40]!a}")

    def _doctype(self, *_: object) -> NoReturn:
        _refuse("an envelope must not have a DTD")

    def _instruction(self, *_: object) -> NoReturn:
        _refuse("an envelope must not have processing instructions")

    def _namespace(self, prefix: str | None, name: str | None) -> None:
        # The parser repeats the namespace before each name, so a long one would take minutes.
        _insist(
            len(name or "") <= limits.SOAP_NAMESPACE_CHARS_MAX,
            f"a namespace must have at most {limits.SOAP_NAMESPACE_CHARS_MAX} characters",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        _insist(self._elements <= limits.SOAP_ELEMENTS_MAX, "the envelope has too many elements")
        _insist(len(self._open) <= limits.SOAP_DEPTH_MAX, "the envelope is nested too deeply")
        _insist(len(attributes) <= limits.SOAP_ATTRIBUTES_MAX, "an element has too many attributes")
        parent = self._open[-1]
        if _HEADER in self._open:
            self._admit_header(attributes)
        else:
            self._admit(parent, name, attributes)
        self._open.append(name)
        self._seen.append(set())

    def _end(self, name: str) -> None:
        self._open.pop()
        inside = self._seen.pop()
        text, self._text = "".join(self._text), []
        if _HEADER in self._open:
            return
        parent = self._open[-1]
        if name == _ENVELOPE:
            self._seen_in_envelope = inside
        elif name == _BODY:
            _insist(_NOTIFICATIONS in inside, "the body has no notifications")
        elif name == _NOTIFICATIONS:
            missing = {_ORGANISATION, _ACTION, _NOTIFICATION} - inside
            _insist(not missing, f"the notifications have no {_names(missing)}")
        elif name == _NOTIFICATION:
            missing = {_ID, _OBJECT} - inside
            _insist(not missing, f"a notification has no {_names(missing)}")
        elif name == _OBJECT:
            self._admit_object()
        elif parent == _OBJECT:
            self._keep_field(name, text)
        elif name == _ORGANISATION:
            self._envelope.organisation = long_id(text)
        elif name == _ACTION:
            self._envelope.action = long_id(text)
        elif name == _ID:
            self._envelope.notifications[-1].id = long_id(text)

    def _characters(self, text: str) -> None:
        name = self._open[-1]
        if _HEADER in self._open or name in _UNUSED:
            return
        if name in _CHILDREN or name == _OBJECT:
            _insist(not text.strip(), f"unexpected text in {_shown(name)}")
            return
        self._hold(text)
        self._text.append(text)

    # The expected structure.

    def _admit(self, parent: str, name: str, attributes: dict[str, str]) -> None:
        allowed = _CHILDREN.get(parent)
        if parent == _OBJECT:
            space, _, local = name.rpartition(_SEPARATOR)
            _insist(space in OBJECTS, f"the field {_shown(name)} has another namespace")
            self._hold(local, _FIELD_BYTES)
            self._nil = attributes.get(f"{XSI} nil") in ("true", "1")
        elif allowed is None:
            _refuse(f"unexpected elements in {_shown(parent)}")
        elif name not in allowed:
            where = f"in {_shown(parent)}" if parent else "as the first element"
            _refuse(f"unexpected element {_shown(name)} {where}; check its namespace")
        seen = self._seen[-1]
        if name == _NOTIFICATION:
            self._begin_notification()
        else:
            _insist(name not in seen or _is_list(name), f"{_shown(name)} is repeated")
        if name == _OBJECT:
            kind = attributes.get(f"{XSI} type", _KIND).rpartition(":")[2]
            _insist(kind == _KIND, f"a record must be of the kind {_KIND}, not {kind[:40]!a}")
        seen.add(name)

    def _admit_header(self, attributes: dict[str, str]) -> None:
        if attributes.get(f"{SOAP} mustUnderstand") in ("1", "true"):
            _refuse("the envelope has a header with mustUnderstand, which is not supported")

    def _begin_notification(self) -> None:
        notifications = self._envelope.notifications
        _insist(
            len(notifications) < limits.SOAP_NOTIFICATIONS_MAX,
            f"an envelope must have at most {limits.SOAP_NOTIFICATIONS_MAX} notifications",
        )
        notifications.append(Notification())
        self._held_bytes = 0

    def _keep_field(self, name: str, text: str) -> None:
        if _is_list(name):
            return
        local = name.rpartition(_SEPARATOR)[2]
        fields = self._envelope.notifications[-1].fields
        _insist(local not in fields, f"the field {_shown(name)} is repeated")
        fields[local] = None if self._nil else text

    def _admit_object(self) -> None:
        fields = self._envelope.notifications[-1].fields
        fields["Id"] = id_ = long_id(fields.get("Id") or "")
        _insist(
            id_.startswith(_KIND_PREFIX),
            f"{id_} is not the id of an {_KIND}, which begins with {_KIND_PREFIX}",
        )

    def _hold(self, text: str, beside_bytes: int = 0) -> None:
        self._held_bytes += len(text.encode()) + beside_bytes
        _insist(
            self._held_bytes <= limits.SOAP_NOTIFICATION_BYTES_MAX,
            f"a notification must have at most {limits.SOAP_NOTIFICATION_BYTES_MAX} bytes",
        )


def _is_list(name: str) -> bool:
    """Whether an element may be repeated: it lists fields that became empty, which the fields also
    show."""
    return name.endswith(f"{_SEPARATOR}fieldsToNull")


def _insist(holds: bool, otherwise: str) -> None:
    if not holds:
        _refuse(otherwise)


def _refuse(why: str) -> NoReturn:
    raise BadInput(why, code=BAD_ENVELOPE)


def _names(names: set[str]) -> str:
    return ", ".join(sorted(map(_shown, names)))


def _shown(name: str) -> str:
    """A shortened name without its namespace."""
    return ascii(name.rpartition(_SEPARATOR)[2][:40])[1:-1]


# Responses.


def _envelope(body: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="{SOAP}"><soapenv:Body>{body}'
        "</soapenv:Body></soapenv:Envelope>"
    ).encode()


ACK = _envelope(
    f'<notificationsResponse xmlns="{OUTBOUND}"><Ack>true</Ack></notificationsResponse>'
)
"""The acknowledgement: everything is durable, and the sender need not repeat it."""


def fault(error: OncewardError) -> bytes:
    """A SOAP fault with the reason. `Client` marks an error of the sender."""
    code = "Client" if error.kind.status < 500 else "Server"
    text = "".join(char for char in error.message if char.isprintable())
    return _envelope(
        f"<soapenv:Fault><faultcode>soapenv:{code}</faultcode>"
        f"<faultstring>{escape(text)}</faultstring></soapenv:Fault>"
    )
