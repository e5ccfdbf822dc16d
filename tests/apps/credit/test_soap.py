"""Outbound messages are read for what they say, and refused whole if anything is amiss."""

import tracemalloc
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward.apps.credit import limits, soap
from onceward.apps.credit.outbound import write
from onceward.errors import BadInput, OncewardError
from tests.apps.credit.envelopes import (
    BAD,
    GOOD,
    ORGANISATION,
    SESSION,
    envelope,
    notification,
    opportunity,
    replaced,
)

# What XML can say, and is not changed by reading it.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=50
)
NAMES = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: name not in ("Id", "fieldsToNull")
)
FIELDS = st.dictionaries(NAMES, TEXTS | st.none(), max_size=8)


def test_a_message_is_read() -> None:
    read = soap.read(GOOD)
    assert read.organisation == ORGANISATION
    assert read.action == "04k000000000001AAA"
    [one] = read.notifications
    assert one.id == "04l000000000001AAA"
    assert one.opportunity == opportunity(1)
    assert one.fields == {"Id": opportunity(1), "Name": "Applicant 1"}
    assert SESSION not in repr(read)


@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_whatever_a_message_says_is_what_is_read(records: list[dict[str, str | None]]) -> None:
    sent = [notification(n, **fields) for n, fields in enumerate(records)]
    read = soap.read(write(ORGANISATION, sent))
    assert [(one.id, one.fields) for one in read.notifications] == sent


@pytest.mark.parametrize("name", BAD)
def test_a_bad_envelope_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        soap.read(BAD[name])
    assert (refused.value.code, refused.value.kind.status) == ("bad_envelope", 400)
    assert SESSION not in refused.value.message
    assert len(refused.value.message) < 300


def test_what_is_unusual_and_right_is_read() -> None:
    partner = replaced(b"sobject.enterprise", b"sobject.partner")
    untyped = replaced(b'xsi:type="sf:Opportunity" ', b"")
    nulls = replaced(b"<sf:Name>", b"<sf:fieldsToNull>Amount</sf:fieldsToNull>" * 3 + b"<sf:Name>")
    header = replaced(
        b"<soapenv:Body>",
        b"<soapenv:Header><a><b>text</b></a></soapenv:Header><!-- a note --><soapenv:Body>",
    )
    short = replaced(opportunity(1).encode(), opportunity(1)[:15].encode())
    spaced = GOOD.replace(b"><", b">\n  <")
    data = replaced(b"Applicant 1", b"Appli<![CDATA[cant]]><!-- x --> &#49;")
    for unusual in (partner, untyped, nulls, header, short, spaced, data):
        assert soap.read(unusual) == soap.read(GOOD)


def test_a_full_envelope_is_read() -> None:
    numbers = range(limits.SOAP_NOTIFICATIONS_MAX)
    read = soap.read(envelope(*numbers))
    assert [one.opportunity for one in read.notifications] == [opportunity(n) for n in numbers]


def verdict(body: bytes) -> str:
    try:
        soap.read(body)
    except BadInput as refused:
        return refused.code
    return "read"


@given(st.binary(max_size=200), st.integers(0, len(GOOD)), st.integers(0, 60))
@example(b"", 0, 0)
def test_whatever_comes_is_read_or_refused(junk: bytes, at: int, less: int) -> None:
    assert verdict(GOOD[:at] + junk + GOOD[at + less :]) in ("read", "bad_envelope")


def test_what_is_refused_takes_no_memory() -> None:
    for body in BAD.values():
        tracemalloc.start()
        with pytest.raises(BadInput):
            soap.read(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 4 << 20


@given(TEXTS | st.text(max_size=20))
def test_a_fault_is_xml_whatever_it_says(text: str) -> None:
    for code, who in (("bad_envelope", "Client"), ("engine_stopped", "Server")):
        root = ElementTree.fromstring(soap.fault(OncewardError(text, code=code)))
        [fault] = root.iter(f"{{{soap.SOAP}}}Fault")
        assert fault.findtext("faultcode") == f"soapenv:{who}"
        assert fault.findtext("faultstring") is not None


def test_an_acknowledgement_says_so() -> None:
    root = ElementTree.fromstring(soap.ACK)
    assert root.findtext(f".//{{{soap.OUTBOUND}}}Ack") == "true"
