"""Tables and functions in databases of applications, as SQL statements.

Statements are in files named after the database. Each ends with a semicolon and an empty line, and
can be repeated.
"""

from importlib import resources

from onceward.errors import BadInput

DIALECTS = ("postgresql", "sqlite")


def statements(dialect: str, *, notify: bool = False) -> list[str]:
    """The SQL statements that create the outbox, for migration tools. Each is safe to repeat.

    Args:
        dialect: `postgresql` or `sqlite`.
        notify: Add a trigger that wakes the node with NOTIFY (PostgreSQL only).

    Raises `BadInput` for another database.
    """
    name = "postgresql" if dialect == "postgres" else dialect
    if name not in DIALECTS:
        raise BadInput(
            f"unsupported database {str(dialect)[:100]!r}; use {' or '.join(DIALECTS)}",
            code="bad_engine_url",
        )
    if notify and name != "postgresql":
        raise BadInput(f"{name} has no NOTIFY; omit `notify`")
    files = [name, "notify"] if notify else [name]
    folder = resources.files("onceward.sql")
    texts = [(folder / f"{file}.sql").read_text(encoding="utf-8") for file in files]
    return [one for text in texts for one in text.strip().split("\n\n")]
