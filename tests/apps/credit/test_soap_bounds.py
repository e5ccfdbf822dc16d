"""How large an envelope may be, to the last byte and element; and what is not even held."""

from collections.abc import Callable

import pytest

from apps.credit import soap
from onceward.errors import BadInput
from tests.apps.credit.envelopes import GOOD, SESSION, envelope, replaced

Made = Callable[[int], bytes]

ELEMENTS = GOOD.count(b"</")
# The ids of a notification and of its record, and what is around the names and texts of fields.
BESIDE_BYTES = 2 * 18 + len('"Id":null,"Name":null,')


def headed(inside: bytes, attributes: bytes = b"") -> bytes:
    """A good envelope with a header, in which there may be anything."""
    header = b"<soapenv:Header " + attributes + b">" + inside + b"</soapenv:Header>"
    return replaced(b"<soapenv:Body>", header + b"<soapenv:Body>")


def with_attributes(count: int) -> bytes:
    attributes = b" ".join(b'a%d="1"' % number for number in range(count))
    return replaced(b"<sf:Name>", b"<sf:Name %s>" % attributes)


def with_bytes_of_a_notification(count: int) -> bytes:
    name = "ü" * 1_000
    return replaced(b"Applicant 1", name.encode() + b"x" * (count - BESIDE_BYTES - 2_000))


# How much there may be, and an envelope that has so much of it.
BOUNDS: dict[str, tuple[int, Made]] = {
    "bytes": (1 << 20, lambda count: GOOD + b" " * (count - len(GOOD))),
    "elements": (20_000, lambda count: headed(b"<a/>" * (count - 1 - ELEMENTS))),
    "levels": (12, lambda count: headed(b"<a>" * (count - 2) + b"</a>" * (count - 2))),
    "attributes": (16, with_attributes),
    "characters in the name of a namespace": (
        256,
        lambda count: headed(b"", b"xmlns:q='%s'" % (b"u" * count)),
    ),
    "bytes of a notification": (150_000, with_bytes_of_a_notification),
    "notifications": (100, lambda count: envelope(*range(count))),
}


@pytest.mark.parametrize("what", BOUNDS)
def test_an_envelope_may_have_so_much_and_no_more(what: str) -> None:
    most, made = BOUNDS[what]
    assert soap.read(made(most)).notifications
    with pytest.raises(BadInput, match=r"at most|too many|too deeply") as refused:
        soap.read(made(most + 1))
    assert refused.value.code == "credit_bad_envelope"


def test_each_notification_may_be_as_large_as_one() -> None:
    body = envelope(1, 2)
    for number in (1, 2):
        name = b"x" * (150_000 - BESIDE_BYTES)
        body = body.replace(b"Applicant %d" % number, name)
    assert [len(one.fields["Name"] or "") for one in soap.read(body).notifications] == [
        150_000 - BESIDE_BYTES
    ] * 2


def test_of_what_nobody_asks_for_there_may_be_more() -> None:
    much = b"x" * 200_000
    for body in (headed(much), headed(b"<a>" + much + b"</a>"), replaced(SESSION.encode(), much)):
        assert soap.read(body) == soap.read(GOOD)
