"""The file of a ledger: SQLite, one table of events that is only appended to.

A transaction gives the events replayed, and keeps what is appended. Processes
and threads may share the file. What is damaged, foreign or newer is refused.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgbb.custody.entries import LedgerError
from pgbb.custody.history import RESTORE, History

APPLICATION = 0x70676262  # "pgbb", in the header of the file
VERSION = 1
WAIT = 60.0  # seconds to wait for another process's transaction
LARGEST = 2**28  # bytes of a ledger file
TABLE = "CREATE TABLE events (number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL)"
GUARDS = {
    f"no_{action}": f"CREATE TRIGGER no_{action} BEFORE {action.upper()} ON events "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is only appended to'); END"
    for action in ("update", "delete")
}


def create(path: Path) -> None:
    """An empty file, readable by its owner only, unless there is one."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no file has such a name"
        raise LedgerError(f"{path} cannot be made: {why}. Choose a folder that exists and can be written.") from None


@contextmanager
def transaction(path: Path, *, write: bool = True) -> Iterator[History]:
    """The content of the file, to be read and appended to; what is appended is kept if the block ends well.

    A writer holds the file alone from before it reads until its commit has
    reached the disk (BEGIN IMMEDIATE, synchronous = EXTRA), so that two cannot both find the same room.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):  # the latter: a path with a null character
        raise LedgerError(
            f"{path}: there is no such ledger. Check the path, or make one: "
            f"pgbb ledger set {path} NAME --n N --epsilon E --delta D."
        ) from None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        raise LedgerError(f"{path} is not a ledger: it is no plain file, or larger than any ledger.")
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=WAIT, isolation_level=None
        )
    except sqlite3.Error as error:
        raise _failed(path, error) from None
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        _check_schema(path, connection, write)
        yield History(path, connection, write)
        connection.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in the file need not be text
        raise _failed(path, error) from None
    finally:
        connection.close()  # rolls back what was not committed


def _check_schema(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    """A fresh file becomes a ledger; any other must be one, with nothing beside it."""
    there = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not there and not application and not version:
        if not write:
            raise LedgerError(
                f"{path} is empty. Declare a data set first: pgbb ledger set {path} NAME --n N --epsilon E --delta D."
            )
        for statement in (TABLE, *GUARDS.values()):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        return
    if application != APPLICATION:
        raise LedgerError(f"{path} is a database, but not a pgbb ledger. Give the path of the ledger.")
    if version > VERSION:
        raise LedgerError(
            f"{path} has version {version}; this pgbb reads up to {VERSION}. Upgrade pgbb: pip install --upgrade pgbb."
        )
    expected = {("table", "events", TABLE), *(("trigger", name, sql) for name, sql in GUARDS.items())}
    if version != VERSION or {tuple(row) for row in there} != expected:
        raise LedgerError(f"{path}: the tables are not those of a ledger; it was changed outside. {RESTORE}")


def _failed(path: Path, error: Exception) -> LedgerError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerError(f"{path} was held by other processes for {WAIT:g} s. Nothing was asked; try again.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return LedgerError(f"{path} cannot be opened for writing. The file and its folder must be writable by you.")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return LedgerError(f"{path} could not be written: the disk is full or fails. Make room; try again.")
    return LedgerError(f"{path} is not a readable ledger: it is damaged, or another kind of file. {RESTORE}")
