"""Credit intake: a sender that repeats itself triggers one credit pull.

Salesforce sends outbound messages until it reads an acknowledgement, a pull takes minutes and
costs an applicant dearly when it happens twice. `soap` reads the messages, `intake` accepts
them, `credit` works on them; README.md shows it all.
"""
