"""Loading of server keys, and their comparison with the check values in the database.

A key is given by the settings, or made and kept in a file of the user's own, outside the folder of
the database and never in a backup. The database has a check value for each key in use: a node
without any of these keys does not start where several share a database. On SQLite it starts, since
that is what a restored backup without its key looks like: sessions are void, and endpoints whose
secrets cannot be read are suspended.
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
    """Which server keys a database is used with."""

    id: str
    """Name of the key file if no key is given. Backups contain it."""
    checks: dict[str, str] = {}
    """Check values by key id."""


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
        """`given` are keys as text; `path` is the database file, if there is one."""
        self._store = store
        self._given = given
        self._path = path
        self._environment = environment
        self._lock = asyncio.Lock()

    async def unlock(self) -> None:
        """Load the keys, and make one if the database has none yet. Idempotent. Raises
        `wrong_server_key`, `no_server_key`, `bad_settings`."""
        async with self._lock:
            if not self._store.server_keys:
                await self._unlock()

    async def unlock_known(self) -> None:
        """The same, but make no key for a database that has none yet."""
        if not self._store.server_keys and await self._store.run(_read) is not None:
            await self.unlock()

    async def replace(self) -> None:
        """Use the database with these keys from now on, though it has others. What is encrypted
        with them stays unreadable until a node has them again."""
        await self._unlock(insist=False)

    async def _unlock(self, *, insist: bool = True) -> None:
        record = await self._store.run(self._prepare)
        texts = given_keys(self._given, self._environment)
        if not texts:
            texts = [self._kept(record, insist)]
        found = ServerKeys(parse_keys(texts), self._store.random_bytes)
        if not found:
            raise OncewardError("the server key that was given is empty", code="bad_settings")
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
        """The key that was made for this database, on this machine; a new one, if it has none."""
        if re.fullmatch("[0-9a-f]{32}", record.id) is None:  # it could lead to any file
            raise CannotOpen(
                f"the database names its server key {record.id[:100]!a}, not by 32 hex digits: "
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
            "made the server key %s: keep a copy of it apart from backups of the database, and "
            "give it to all nodes (%s)",
            *(path, FILE_VARIABLE),
        )
        if self._path and Path(self._path).resolve().parent in path.resolve().parents:
            logger.warning(
                "the server key %s lies in the folder of the database: who copies that folder "
                "copies the key; set %s",
                *(path, FILE_VARIABLE),
            )
        return read_key_file(path)


async def _read(tx: Transaction) -> KeyRecord | None:
    return await tx.get(RECORD, KeyRecord)


def lost_message(ids: "set[str] | Sequence[str]") -> str:
    return (
        f"secrets may be encrypted with server keys that are not here ({', '.join(sorted(ids))}): "
        f"sessions signed with them are void, and endpoints whose secrets cannot be read are "
        f"suspended. Add the keys to {FILE_VARIABLE}, or write these endpoints again"
    )


def given_keys(given: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Keys as text: those given, or of the environment, or of the file that it names; else none.
    Raises `bad_settings`."""
    if given:
        return list(given)
    text, file = environment.get(VARIABLE, ""), environment.get(FILE_VARIABLE, "")
    if text and file:
        raise OncewardError(
            f"{VARIABLE} and {FILE_VARIABLE} are both set: leave one out", code="bad_settings"
        )
    if not file:
        return [text] if text else []
    try:
        return [read_key_file(Path(file))]
    except FileNotFoundError as error:
        raise OncewardError(
            f"there is no server key file {file}: `onceward server-key new` makes a key",
            code="bad_settings",
        ) from error


def key_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where keys are kept that nobody has given. Raises `no_server_key` if there is no home."""
    state = environment.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise _cannot_keep("the home folder", str(error)) from error
    return home / "onceward" / "keys"


def read_key_file(path: Path) -> str:
    """The text of a key file; warns if others can read it. Raises `FileNotFoundError`,
    `bad_settings`."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise OncewardError(
            f"the server key file {path} cannot be read: {error}", code="bad_settings"
        ) from error
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        logger.warning("every user of this machine can read the server key %s: chmod it", path)
    return text


def _write_key_file(path: Path, key: str) -> None:
    """Make the file, whole and durable, unless it is there."""
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
        f"no server key is given, and none can be kept in {where} ({reason}): set "
        f"{FILE_VARIABLE}, {VARIABLE} or XDG_STATE_HOME",
        code="no_server_key",
    )


def _wrong(record: KeyRecord, found: ServerKeys) -> CannotOpen:
    own = f"this node has {', '.join(found.checks)}" if found else "this node has none of them"
    return CannotOpen(
        f"the database is used with the server keys {', '.join(record.checks)}; {own}. Give all "
        f"nodes the same key by {FILE_VARIABLE}. If the key is lost, `onceward server-key "
        "replace` goes on without it",
        code="wrong_server_key",
    )
