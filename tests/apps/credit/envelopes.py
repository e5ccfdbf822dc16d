"""Envelopes, good and bad."""

from apps.credit.outbound import write
from apps.credit.record_id import long_id

ORGANISATION = long_id("00D000000000001")
SESSION = "00D000000000001!this-is-the-session"


def opportunity(number: int = 1) -> str:
    return long_id(f"006{number:012d}")


def notification(number: int = 1, id_: str | None = None, **fields: str | None):  # type: ignore[no-untyped-def]
    """As `write` takes it."""
    told = {"Id": opportunity(number), "Name": f"Applicant {number}", **fields}
    return id_ or long_id(f"04l{number:012d}"), told


def envelope(*numbers: int, organisation: str = ORGANISATION) -> bytes:
    """A good one."""
    return write(organisation, [notification(n) for n in numbers or (1,)], session=SESSION)


GOOD = envelope()
_HEAD, _TAIL = GOOD.split(b"<notifications", 1)
DTD = b'<?xml version="1.0"?>\n<!DOCTYPE soapenv:Envelope %s>' + GOOD.split(b"\n", 1)[1]
LAUGHS = b"[<!ENTITY a0 'ha'>%s]" % b"".join(
    b"<!ENTITY a%d '%s'>" % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10)
)
DEPTH = 200_000


def without(element: str) -> bytes:
    """A good one that lacks an element."""
    opened = f"<{element}".encode()
    start = GOOD.index(opened)
    name = element.split()[0].encode()
    closed = b"</" + name + b">"
    return GOOD[:start] + GOOD[GOOD.index(closed, start) + len(closed) :]


def replaced(old: bytes, new: bytes) -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD: dict[str, bytes] = {
    "nothing": b"",
    "not XML": b"Id=006000000000001&Ack=true",
    "JSON": b'{"Ack": true}',
    "cut off": GOOD[:-20],
    "something behind it": GOOD + b"<more/>",
    "something unfinished behind it": GOOD + b"<!-- more",
    "a DTD": DTD % b"",
    "an entity": (DTD % b"[<!ENTITY e 'x'>]").replace(b"Applicant 1", b"&e;"),
    "an entity from a file": (DTD % b"[<!ENTITY e SYSTEM 'file:///etc/passwd'>]").replace(
        b"Applicant 1", b"&e;"
    ),
    "an entity from elsewhere": DTD % b"SYSTEM 'http://localhost:1/x.dtd'",
    "a billion laughs": (DTD % LAUGHS).replace(b"Applicant 1", b"&a9;"),
    "an entity nobody knows": replaced(b"Applicant 1", b"&nbsp;"),
    "a processing instruction": replaced(b"<soapenv:Body>", b"<?x y?><soapenv:Body>"),
    "another encoding": GOOD.replace(b"UTF-8", b"ISO-8859-1"),
    "UTF-16": GOOD.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
    "bytes that are no text": replaced(b"Applicant 1", b"\xff\xfe"),
    "NUL": replaced(b"Applicant 1", b"&#0;"),
    "nested for ever": b"<a>" * DEPTH,
    "nested for ever in a field": replaced(b"Applicant 1", b"<sf:a>" * DEPTH),
    "nested for ever in a header": replaced(
        b"<soapenv:Body>", b"<soapenv:Header>" + b"<a>" * DEPTH
    ),
    "101 notifications": envelope(*range(101)),
    "no notification": without("Notification"),
    "another namespace of SOAP": replaced(
        b"http://schemas.xmlsoap.org/soap/envelope/", b"http://www.w3.org/2003/05/soap-envelope"
    ),
    "another namespace of messages": replaced(b"/2005/09/outbound", b"/2006/01/outbound"),
    "another namespace of records": replaced(b"urn:sobject.enterprise", b"urn:sobject.other"),
    "no namespace": b"<Envelope><Body/></Envelope>",
    "no envelope": b"<notifications" + _TAIL.split(b"</soapenv:Body>")[0],
    "no body": b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"/>',
    "an empty body": _HEAD + b"</soapenv:Body></soapenv:Envelope>",
    "two bodies": replaced(b"</soapenv:Body>", b"</soapenv:Body><soapenv:Body/>"),
    "two messages": replaced(
        b"</soapenv:Body>",
        b'<x:notifications xmlns:x="http://soap.sforce.com/2005/09/outbound"/></soapenv:Body>',
    ),
    "no organisation": without("OrganizationId"),
    "two organisations": replaced(
        b"<ActionId>", b"<OrganizationId>00D000000000002</OrganizationId><ActionId>"
    ),
    "a broken organisation": replaced(ORGANISATION.encode(), b"nobody"),
    "no action": without("ActionId"),
    "no id of a notification": replaced(b"<Id>04l000000000001AAA</Id>", b""),
    "no record": without("sObject"),
    "no id of a record": without("sf:Id"),
    "nil for the id of a record": replaced(
        b"<sf:Id>" + opportunity().encode() + b"</sf:Id>", b'<sf:Id xsi:nil="true"/>'
    ),
    "a damaged id of a record": replaced(opportunity().encode(), b"006000000000001XYZ"),
    "a record of another kind": replaced(b"sf:Opportunity", b"sf:Contact"),
    "the id of another kind": replaced(b"<sf:Id>006", b"<sf:Id>003"),
    "a field twice": replaced(b"<sf:Name>", b"<sf:Name>x</sf:Name><sf:Name>"),
    "a field twice, of two namespaces": replaced(
        b"<sf:Name>",
        b'<p:Name xmlns:p="urn:sobject.partner.soap.sforce.com">x</p:Name><sf:Name>',
    ),
    "elements in a field": replaced(b"Applicant 1", b"<sf:First>A</sf:First>"),
    "an unknown element": replaced(b"<ActionId>", b"<Surprise/><ActionId>"),
    "text between elements": replaced(b"<ActionId>", b"surprise<ActionId>"),
    "mustUnderstand": replaced(
        b"<soapenv:Body>",
        b'<soapenv:Header><x soapenv:mustUnderstand="1"/></soapenv:Header><soapenv:Body>',
    ),
    "a part of mustUnderstand": replaced(
        b"<soapenv:Body>",
        b'<soapenv:Header><x><y soapenv:mustUnderstand="true"/></x></soapenv:Header><soapenv:Body>',
    ),
    "too many attributes": replaced(
        b"<sf:Name>", b"<sf:Name %s>" % b" ".join(b'a%d="1"' % n for n in range(17))
    ),
    "too many elements": replaced(
        b"<soapenv:Body>",
        b"<soapenv:Header>" + b"<a/>" * 20_001 + b"</soapenv:Header><soapenv:Body>",
    ),
    "the name of a namespace without end": replaced(
        b"<soapenv:Body>",
        b"<soapenv:Header xmlns:q='%s'>%s</soapenv:Header><soapenv:Body>"
        % (b"u" * 400_000, b"<q:a/>" * 18_000),
    ),
    "a field without end": replaced(b"Applicant 1", b"x" * 150_001),
    "fields without number": replaced(
        b"<sf:Name>", b"".join(b"<sf:a%020d/>" % n for n in range(6_000)) + b"<sf:Name>"
    ),
    "too many bytes": replaced(b"<sf:Name>", b" " * (1 << 20) + b"<sf:Name>"),
}
