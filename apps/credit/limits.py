"""The limits of credit intake: of what bureaus and Salesforce send, and of envelopes."""

# What is read of an answer of a bureau or of Salesforce, and kept of a report: it fits a record.
ANSWER_BYTES_MAX = 300_000
CONNECT_S = 30.0
# An envelope of outbound messages, which Salesforce fills with up to 100 notifications. What is
# within these takes a moment to read, and each notification makes one job.
SOAP_BYTES_MAX = 1 << 20
SOAP_DEPTH_MAX = 12
SOAP_ELEMENTS_MAX = 20_000
SOAP_ATTRIBUTES_MAX = 16
SOAP_NAMESPACE_CHARS_MAX = 256
SOAP_NOTIFICATIONS_MAX = 100
SOAP_NOTIFICATION_BYTES_MAX = 150_000
# So long Salesforce waits for an acknowledgement, and so many notifications are kept in memory to
# tell why they come again.
ACK_S_MAX = 60.0
DELIVERIES_KEPT_MAX = 20_000
# The reasons of a decision, as JSON: they are kept in the record of the application.
REASONS_BYTES_MAX = 3_000
