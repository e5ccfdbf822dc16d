"""Tables and functions of the database, as numbered migrations.

A migration is a file in `sql/`, named after its number and purpose. It must keep the functions that
the previous release calls, since nodes are upgraded one by one.
"""

from importlib import resources
from typing import Final

from onceward import limits
from onceward.engine.postgres.link import Link, Lost, Rejected, Target
from onceward.errors import CannotOpen

# Queries the catalog instead of the session's cache: another node may have created the schema while
# this one waited for the lock.
_FIND: Final = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1),
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = 'meta'
    ),
    current_setting('server_encoding')
"""
_VERSION: Final = "SELECT value FROM {schema}.meta WHERE name = 'onceward_schema'"
# Migrations run without timeouts, and other nodes wait for the lock.
_BEGIN: Final = """
BEGIN;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock(hashtextextended('onceward migrates {schema}', 0));
"""
_META: Final = """
CREATE TABLE {schema}.meta (name text PRIMARY KEY, value text NOT NULL);
INSERT INTO {schema}.meta VALUES ('onceward_schema', '0');
"""
_APPLIED: Final = "UPDATE {schema}.meta SET value = '{number}' WHERE name = 'onceward_schema'"


def migrations() -> list[str]:
    """The scripts in order; the first has number 1."""
    folder = resources.files("onceward.engine.postgres") / "sql"
    files = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    scripts = []
    for number, file in enumerate((f for f in files if f.name.endswith(".sql")), 1):
        assert file.name.startswith(f"{number:04}_"), f"{file.name} is out of order"
        scripts.append(file.read_text(encoding="utf-8"))
    return scripts


async def migrate(link: Link, target: Target) -> None:
    """Migrate the schema to the current version if necessary. Raises `CannotOpen`."""
    scripts = migrations()
    try:
        if await _version(link, target) == len(scripts):
            return
        link.answer_s = limits.MIGRATE_S
        await link.run(_BEGIN.format(schema=target.schema))
        try:
            await _apply(link, target, scripts)
            await link.run("COMMIT")
        except BaseException:
            if not link.closed:
                await link.run("ROLLBACK")
            raise
    except Rejected as error:
        if error.sqlstate == "42501":
            raise CannotOpen(
                f"{target.label}: the user may not create or change the schema: {error}. Grant "
                "CREATE on the database, or have its owner open it once.",
                code="access_denied",
            ) from error
        raise CannotOpen(
            f"cannot migrate {target.label}: {error}. Check the permissions of the user.",
            code="storage_failed",
        ) from error
    except Lost as error:
        raise CannotOpen(
            f"lost the connection to {target.label} while opening it: {error}. Check the "
            "database, and retry.",
            code="engine_unreachable",
        ) from error


async def _apply(link: Link, target: Target, scripts: list[str]) -> None:
    version = await _version(link, target)  # another node may have migrated it
    if version is None:
        [(there, _, _)] = await link.fetch(_FIND, target.schema)
        if not there:
            await link.run(f"CREATE SCHEMA {target.schema}")
        await link.run(_META.format(schema=target.schema))
        version = 0
    for number, script in enumerate(scripts[version:], version + 1):
        await link.run(script.replace("@schema@", target.schema))
        await link.run(_APPLIED.format(schema=target.schema, number=number))


async def _version(link: Link, target: Target) -> int | None:
    """The number of applied migrations; None if the schema is new."""
    [(_, meta, encoding)] = await link.fetch(_FIND, target.schema)
    if encoding != "UTF8":
        raise CannotOpen(
            f"{target.label} has the encoding {encoding}. Create a database with UTF8.",
            code="not_a_database",
        )
    if not meta:
        return None
    try:
        rows = await link.fetch(_VERSION.format(schema=target.schema))
    except Rejected as error:
        if error.sqlstate[:2] != "42" or error.sqlstate == "42501":
            raise
        rows = []
    if not rows:
        raise CannotOpen(
            f"{target.label} has a table meta that is not Onceward's. Use another schema.",
            code="not_a_database",
        )
    version, known = int(rows[0][0]), len(migrations())
    if version > known:
        raise CannotOpen(
            f"{target.label} was prepared by a newer version (schema {version}; this version "
            "supports "
            f"{known}). Upgrade Onceward.",
            code="database_newer",
        )
    return version
