"""An application on a disk that breaks once a file is there, for a server in another process."""

import errno
import os
from pathlib import Path

from onceward.app import App
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.disk import Disk

FOLDER = "ONCEWARD_TEST_FOLDER"
"""The variable that names the folder of database and file."""

_folder = Path(os.environ.get(FOLDER, "."))


class Breakable(Disk):
    def write_durably(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if (_folder / "broken").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write_durably(fd, data, offset)


app = App(SQLiteEngine(str(_folder / "app.db"), disk=Breakable()))
