"""Loading of server keys, and their comparison with the check values in the database.

A key comes from the settings, or is generated and stored in a private file of the user. That file
is outside the folder of the database and never in a backup. The database has a check value for each
key in use. On a shared database, a node without any of these keys does not start. On SQLite it
starts, since this is the situation of a restored backup without its key: sessions are invalid, and
endpoints whose secrets cannot be decrypted are suspended.
"""

import asyncio
import logging
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from onceward.errors import CannotOpen, OncewardError
from onceward.keys import Key
from onceward.server_key import ServerKeys, new_key, parse_keys
from onceward.store import Store
from onceward.store.transaction import Transaction

logger = logging.getLogger("onceward")

VARIABLE = "ONCEWARD_SERVER_KEY"
FILE_VARIABLE = "ONCEWARD_SERVER_KEY_FILE"
ALARM = "server_key_lost"
RECORD: Key = ("config", "server_key")


class KeyRecord(msgspec.Struct):
    """The server keys that a database is used with."""

    id: str
    """The name of the key file if no key is given. Backups contain it."""
    checks: dict[str, str] = {}
    """Check values by key ID."""


class KeySource:
    """Loads the server keys of one application into its store."""

    def __init__(
        self,
        store: Store,
        given: Sequence[str] = (),
        *,
        path: str = "",
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`given` are keys as text; `path` is the database file, or empty."""
        self._store = store
        self._given = given
        self._path = path
        self._environment = environment
        self._lock = asyncio.Lock()

    async def unlock(self) -> None:
        """Load the keys, and generate one if the database has none yet. Idempotent.

        Raises `wrong_server_key`, `no_server_key`, `bad_settings`.
        """
        async with self._lock:
            if not self._store.server_keys:
                await self._unlock()

    async def unlock_known(self) -> None:
        """Load the keys, but generate none for a database without one."""
        if not self._store.server_keys and await self._store.run(_read) is not None:
            await self.unlock()

    async def replace(self) -> None:
        """Use the database with these keys, although it has others.

        Secrets that are encrypted with the others stay unreadable until a node has those keys
        again.
        """
        await self._unlock(insist=False)

    async def _unlock(self, *, insist: bool = True) -> None:
        record = await self._store.run(self._prepare)
        texts = given_keys(self._given, self._environment)
        if not texts:
            texts = [self._kept(record, insist)]
        found = ServerKeys(parse_keys(texts), self._store.random_bytes)
        if not found:
            raise OncewardError(
                "the given server key is empty; generate one with `onceward server-key new`",
                code="bad_settings",
            )
        strict = insist and self._store.engine.shared

        async def adopt(tx: Transaction) -> KeyRecord:
            known = await tx.get(RECORD, KeyRecord) or record
            if strict and known.checks and not found.checks.items() & known.checks.items():
                raise _wrong(known, found)
            first = dict(list(found.checks.items())[:1])
            if not first.items() <= known.checks.items():
                known.checks.update(first)
                tx.put(RECORD, known)
            return known

        record = await self._store.run(adopt)
        self._store.server_keys = found
        lost = record.checks.keys() - found.checks.keys()
        if lost:
            self._store.alarms.raise_(ALARM, lost_message(lost))

    async def _prepare(self, tx: Transaction) -> KeyRecord:
        known = await tx.get(RECORD, KeyRecord)
        if known is None:
            known = KeyRecord(self._store.ids.token(16))
            tx.put(RECORD, known)
        return known

    def _kept(self, record: KeyRecord, insist: bool) -> str:
        """The generated key of this database on this machine, which is created if necessary."""
        if re.fullmatch("[0-9a-f]{32}", record.id) is None:  # it could name any file
            raise CannotOpen(
                f"the database names its server key {record.id[:100]!a} instead of 32 hex digits; "
                "restore a backup",
                code="damaged",
            )
        path = key_folder(self._environment) / f"{record.id}.key"
        if path.exists():
            return read_key_file(path)
        if insist and record.checks and self._store.engine.shared:
            raise _wrong(record, ServerKeys())
        _write_key_file(path, new_key())
        logger.log(
            logging.WARNING if self._store.engine.shared else logging.INFO,
            "generated the server key %s: keep a copy separate from backups of the database, and "
            "give it to all nodes (%s)",
            *(path, FILE_VARIABLE),
        )
        if self._path and Path(self._path).resolve().parent in path.resolve().parents:
            logger.warning(
                "the server key %s is in the folder of the database, so copies of that folder "
                "contain the key; set %s",
                *(path, FILE_VARIABLE),
            )
        return read_key_file(path)


async def _read(tx: Transaction) -> KeyRecord | None:
    return await tx.get(RECORD, KeyRecord)


def lost_message(ids: "set[str] | Sequence[str]") -> str:
    return (
        f"secrets may be encrypted with missing server keys ({', '.join(sorted(ids))}): "
        f"sessions signed with them are invalid, and endpoints whose secrets cannot be decrypted "
        f"are suspended. Add the keys to {FILE_VARIABLE}, or save these endpoints again"
    )


def given_keys(given: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Keys as text: the given ones, or from the environment, or from the file that it names.

    Raises `bad_settings`.
    """
    if given:
        return list(given)
    text, file = environment.get(VARIABLE, ""), environment.get(FILE_VARIABLE, "")
    if text and file:
        raise OncewardError(
            f"{VARIABLE} and {FILE_VARIABLE} are both set; remove one of them", code="bad_settings"
        )
    if not file:
        return [text] if text else []
    try:
        return [read_key_file(Path(file))]
    except FileNotFoundError as error:
        raise OncewardError(
            f"server key file {file} not found; create a key with `onceward server-key new`",
            code="bad_settings",
        ) from error


def key_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of generated keys. Raises `no_server_key` if there is no home folder."""
    state = environment.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise _cannot_keep("the home folder", str(error)) from error
    return home / "onceward" / "keys"


def read_key_file(path: Path) -> str:
    """The text of a key file; logs a warning if other users can read it.

    Raises `FileNotFoundError`, `bad_settings`.
    """
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise OncewardError(
            f"cannot read the server key file {path}: {error}; check its permissions",
            code="bad_settings",
        ) from error
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        logger.warning("every user of this machine can read the server key %s; run chmod 600", path)
    return text


def _write_key_file(path: Path, key: str) -> None:
    """Create the file completely and durably, unless it exists."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            os.write(fd, f"{key}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        with suppress(FileExistsError):
            os.link(draft, path)
        os.unlink(draft)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _cannot_keep(str(path), str(error)) from error


def _cannot_keep(where: str, reason: str) -> OncewardError:
    return OncewardError(
        f"no server key is given, and none can be stored in {where} ({reason}); set "
        f"{FILE_VARIABLE}, {VARIABLE} or XDG_STATE_HOME",
        code="no_server_key",
    )


def _wrong(record: KeyRecord, found: ServerKeys) -> CannotOpen:
    own = f"this node has {', '.join(found.checks)}" if found else "this node has none of them"
    return CannotOpen(
        f"the database is used with the server keys {', '.join(record.checks)}; {own}. Give all "
        f"nodes the same key by {FILE_VARIABLE}. If the key is lost, `onceward server-key "
        "replace` continues without it",
        code="wrong_server_key",
    )
