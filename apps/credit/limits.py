"""The limits of credit intake: responses of bureaus and Salesforce, and envelopes."""

# The maximum size of a response of a bureau or of Salesforce, and of a stored report.
ANSWER_BYTES_MAX = 300_000
CONNECT_S = 30.0
# An envelope of outbound messages, which Salesforce fills with up to 100 notifications. Within
# these limits it is parsed quickly, and each notification makes one job.
SOAP_BYTES_MAX = 1 << 20
SOAP_DEPTH_MAX = 12
SOAP_ELEMENTS_MAX = 20_000
SOAP_ATTRIBUTES_MAX = 16
SOAP_NAMESPACE_CHARS_MAX = 256
SOAP_NOTIFICATIONS_MAX = 100
SOAP_NOTIFICATION_BYTES_MAX = 150_000
# Salesforce's timeout for an acknowledgement, and the number of notifications kept in memory to
# find causes of repeats.
ACK_S_MAX = 60.0
DELIVERIES_KEPT_MAX = 20_000
# The reasons of a decision as JSON, stored in the record of the application.
REASONS_BYTES_MAX = 3_000
