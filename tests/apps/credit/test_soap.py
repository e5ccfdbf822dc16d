"""Outbound messages are read for what they say, and refused whole if anything is amiss."""

import tracemalloc
from string import ascii_letters
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.credit import limits, soap
from apps.credit.outbound import write
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
NAMES = st.text(ascii_letters + "_", max_size=20).map("A{}".format)
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


def test_a_message_as_it_is_sent_is_read() -> None:
    read = soap.read(
        b"""<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:xsd="http://www.w3.org/2001/XMLSchema"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
 <soapenv:Body>
  <notifications xmlns="http://soap.sforce.com/2005/09/outbound">
   <OrganizationId>00D000000000001EAA</OrganizationId>
   <ActionId>04k000000000001AAA</ActionId>
   <SessionId xsi:nil="true"/>
   <EnterpriseUrl>https://example.my.salesforce.com/services/Soap/c/61.0</EnterpriseUrl>
   <PartnerUrl>https://example.my.salesforce.com/services/Soap/u/61.0</PartnerUrl>
   <Notification>
    <Id>04l000000000001AAA</Id>
    <sObject xsi:type="sf:Opportunity" xmlns:sf="urn:sobject.enterprise.soap.sforce.com">
     <sf:Id>006000000000001AAA</sf:Id>
     <sf:Amount>1.0</sf:Amount>
     <sf:Name xsi:nil="true"/>
     <sf:Nobody xsi:nil="1"/>
     <sf:Empty xsi:nil="false"></sf:Empty>
    </sObject>
   </Notification>
  </notifications>
 </soapenv:Body>
</soapenv:Envelope>"""
    )
    assert (read.organisation, read.action) == ("00D000000000001EAA", "04k000000000001AAA")
    [one] = read.notifications
    assert (one.id, one.opportunity) == ("04l000000000001AAA", "006000000000001AAA")
    told = {"Amount": "1.0", "Name": None, "Nobody": None, "Empty": ""}
    assert one.fields == {"Id": one.opportunity, **told}


@given(st.lists(FIELDS, min_size=1, max_size=3))
def test_whatever_a_message_says_is_what_is_read(records: list[dict[str, str | None]]) -> None:
    sent = [notification(n, **fields) for n, fields in enumerate(records)]
    read = soap.read(write(ORGANISATION, sent))
    assert [(one.id, one.fields) for one in read.notifications] == sent


@pytest.mark.parametrize("name", BAD)
def test_a_bad_envelope_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        soap.read(BAD[name])
    assert (refused.value.code, refused.value.kind.status) == ("credit_bad_envelope", 400)
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
    # In a header anything may stand, and none of it is meant for this.
    meant = replaced(
        b"<soapenv:Body>",
        b'<soapenv:Header><a xmlns=""/><a soapenv:mustUnderstand="0"/><soapenv:Body/>'
        b'<o:Id xmlns:o="http://soap.sforce.com/2005/09/outbound">nobody</o:Id>'
        b'<o:notifications xmlns:o="http://soap.sforce.com/2005/09/outbound"/>'
        b"</soapenv:Header><soapenv:Body>",
    )
    ascii_ = replaced(b'"UTF-8"', b'"US-ASCII"')
    unsaid = replaced(b' encoding="UTF-8"', b"")
    spaced = GOOD.replace(b"><", b">\n  <")
    data = replaced(b"Applicant 1", b"Appli<![CDATA[cant]]><!-- x --> &#49;")
    for unusual in (
        *(partner, untyped, nulls, header, meant, ascii_, unsaid, short, spaced, data),
        replaced(b"sf:Opportunity", b"Opportunity"),
    ):
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
    assert verdict(GOOD[:at] + junk + GOOD[at + less :]) in ("read", "credit_bad_envelope")


def test_what_is_refused_takes_no_memory() -> None:
    for body in BAD.values():
        tracemalloc.start()
        with pytest.raises(BadInput):
            soap.read(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 4 << 20


def test_a_long_text_is_read_as_it_is() -> None:
    """The parser hands it on in pieces."""
    name = "".join(f"{number}\n" for number in range(10_000))
    [one] = soap.read(replaced(b"Applicant 1", name.encode())).notifications
    assert one.fields["Name"] == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("an empty body", "the body has no notifications"),
        ("no body", "the envelope has no body"),
        ("no record", "a notification has no sObject"),
        ("no action", "the notifications have no ActionId"),
        ("no namespace", "unexpected element Envelope as the first element"),
        ("an unknown element", "unexpected element Surprise in notifications"),
        ("two bodies", "Body is repeated"),
        ("a field twice", "Name is repeated"),
        ("a field twice, of two namespaces", "the field Name is repeated"),
        ("elements in a field", "unexpected elements in Name"),
        ("text between elements", "unexpected text in notifications"),
        ("a record of another kind", "Opportunity, not 'Contact'"),
        ("another encoding", "not 'ISO-8859-1'"),
        ("cut off", "invalid XML"),
    ],
)
def test_a_refusal_says_what_is_amiss(name: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        soap.read(BAD[name])


def test_all_that_is_missing_is_named() -> None:
    body = replaced(b"<OrganizationId>" + ORGANISATION.encode() + b"</OrganizationId>", b"")
    body = body.replace(b"<ActionId>04k000000000001AAA</ActionId>", b"")
    with pytest.raises(BadInput, match="have no ActionId, OrganizationId "):
        soap.read(body)


def test_of_a_long_name_the_beginning_is_shown() -> None:
    with pytest.raises(BadInput, match=f"^unexpected element {'a' * 40} in notifications"):
        soap.read(replaced(b"<ActionId>", b"<%s/><ActionId>" % (b"a" * 100)))
    with pytest.raises(BadInput, match=f"not '{'a' * 40}'"):
        soap.read(replaced(b"sf:Opportunity", b"a" * 100))
    with pytest.raises(BadInput, match=f"not '{'a' * 40}'"):
        soap.read(replaced(b'"UTF-8"', b'"%s"' % (b"a" * 100)))


@given(TEXTS | st.text(max_size=20))
def test_a_fault_is_xml_whatever_it_says(text: str) -> None:
    for code, who in (("credit_bad_envelope", "Client"), ("engine_stopped", "Server")):
        root = ElementTree.fromstring(soap.fault(OncewardError(text, code=code)))
        [fault] = root.iter(f"{{{soap.SOAP}}}Fault")
        assert fault.findtext("faultcode") == f"soapenv:{who}"
        assert fault.findtext("faultstring") is not None


def test_a_fault_says_whose_mistake_it_is_and_what_it_was() -> None:
    assert soap.fault(OncewardError("a <b>\n & c", code="bad_settings")) == (
        b'<?xml version="1.0" encoding="UTF-8"?>'
        b'<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">'
        b"<soapenv:Body><soapenv:Fault><faultcode>soapenv:Server</faultcode>"
        b"<faultstring>a &lt;b&gt; &amp; c</faultstring></soapenv:Fault>"
        b"</soapenv:Body></soapenv:Envelope>"
    )


def test_an_acknowledgement_says_so() -> None:
    assert soap.ACK == (
        b'<?xml version="1.0" encoding="UTF-8"?>'
        b'<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">'
        b'<soapenv:Body><notificationsResponse xmlns="http://soap.sforce.com/2005/09/outbound">'
        b"<Ack>true</Ack></notificationsResponse></soapenv:Body></soapenv:Envelope>"
    )
    assert soap.CONTENT_TYPE == b"text/xml; charset=utf-8"
