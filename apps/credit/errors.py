"""The error codes of credit intake, in addition to those of Onceward."""

from onceward import register_error

BAD_ENVELOPE = register_error(
    "credit_bad_envelope", status=400, title="The SOAP envelope is invalid"
)
WRONG_ORGANISATION = register_error(
    "credit_wrong_organisation", status=403, title="The message is from another organisation"
)
