"""Credit intake: a sender that repeats messages triggers one credit pull.

Salesforce sends outbound messages until it reads an acknowledgement. A pull takes minutes, and a
second one harms the applicant. `soap` parses the messages, `intake` accepts them, `credit`
processes them; README.md has an overview.
"""
