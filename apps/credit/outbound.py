"""Outbound messages in Salesforce's format, for the example sender and tests."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from xml.sax.saxutils import escape, quoteattr

from apps.credit.soap import OBJECTS, OUTBOUND, SOAP, XSI

Fields = Mapping[str, str | None]


def write(
    organisation: str,
    notifications: Iterable[tuple[str, Fields]],
    *,
    action: str = "04k000000000001AAA",
    session: str | None = None,
) -> bytes:
    """The envelope of notifications, each an id and the fields of its record."""
    written = "".join(_notification(id_, fields) for id_, fields in notifications)
    said = '<SessionId xsi:nil="true"/>' if session is None else _element("SessionId", session)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<soapenv:Envelope xmlns:soapenv="{SOAP}" xmlns:xsi="{XSI}"><soapenv:Body>'
        f'<notifications xmlns="{OUTBOUND}">'
        f"{_element('OrganizationId', organisation)}{_element('ActionId', action)}{said}"
        "<EnterpriseUrl>https://example.my.salesforce.com/services/Soap/c/61.0</EnterpriseUrl>"
        "<PartnerUrl>https://example.my.salesforce.com/services/Soap/u/61.0</PartnerUrl>"
        f"{written}</notifications></soapenv:Body></soapenv:Envelope>"
    ).encode()


def wsdl(address: str) -> bytes:
    """The WSDL of the service at a URL, as Salesforce generates it, with a few fields of an
    opportunity."""
    text = files(__package__).joinpath("outbound.wsdl").read_text(encoding="utf-8")
    return text.replace('"ADDRESS"', quoteattr(address)).encode()


def _notification(id_: str, fields: Fields) -> str:
    inside = "".join(
        _element(f"sf:{name}", text) if text is not None else f'<sf:{name} xsi:nil="true"/>'
        for name, text in fields.items()
    )
    return (
        f"<Notification>{_element('Id', id_)}"
        f'<sObject xsi:type="sf:Opportunity" xmlns:sf="{OBJECTS[0]}">{inside}</sObject>'
        "</Notification>"
    )


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"
