"""What an org would send is written as one would."""

from xml.etree import ElementTree

from apps.credit.outbound import write, wsdl
from apps.credit.soap import OUTBOUND


def test_texts_are_escaped() -> None:
    written = write("00D<", [("04l&", {"Id": "]]>", "Nil": None})], session="<&>")
    root = ElementTree.fromstring(written)
    assert root.findtext(f".//{{{OUTBOUND}}}OrganizationId") == "00D<"
    assert root.findtext(f".//{{{OUTBOUND}}}SessionId") == "<&>"
    [fields] = root.iter(f"{{{OUTBOUND}}}sObject")
    assert [element.text for element in fields] == ["]]>", None]


def test_the_wsdl_names_its_address() -> None:
    text = wsdl('http://localhost/a?b="c"&d')
    root = ElementTree.fromstring(text)
    [address] = root.iter("{http://schemas.xmlsoap.org/wsdl/soap/}address")
    assert address.get("location") == 'http://localhost/a?b="c"&d'
