"""Declaration of the server: API keys and sessions."""

from onceward.parts import Kind, Part
from onceward.web.records import StoredKey, StoredSession

PART = Part(
    kinds=(
        Kind("apikey", "{digest}", StoredKey, "an API key that was created at run time"),
        Kind("session", "{caller}#{id}", StoredSession, "a session of the console"),
    ),
)
