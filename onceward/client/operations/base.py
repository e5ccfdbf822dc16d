"""The base of the generated classes."""

from onceward.client.transport import Transport


class Operations:
    """Methods for the operations on one noun."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
