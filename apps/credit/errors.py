"""The error codes of credit intake, beside those of Onceward."""

from onceward import register_error

BAD_ENVELOPE = register_error(
    "credit_bad_envelope", status=400, title="The SOAP envelope is not accepted"
)
WRONG_ORGANISATION = register_error(
    "credit_wrong_organisation", status=403, title="The message is of another organisation"
)
