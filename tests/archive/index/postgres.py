"""Starts a real PostgreSQL of Debian for tests: its own data folder, one socket, no network, no service."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

START_S = 60.0
USER = "postgres"


def binaries() -> Path | None:
    """The newest version that is installed; None: there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[-3].zfill(4)
    )
    return found[-1].parent if found else None


class Postgres:
    """`url` names a new, empty database each time."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._user = USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name

    def start(self) -> "Postgres":
        place = binaries()
        assert place is not None, "asked before"
        if os.getuid() == 0:  # which PostgreSQL refuses to run as
            shutil.chown(self.folder, USER, USER)
        data = self.folder / "data"
        words = [place / "initdb", "-D", data, "-U", self._user, "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([*self._as_user(), *words, "--locale=C.UTF-8"], check=True, stdout=subprocess.DEVNULL)
        options = ["-F", "-h", "", "-k", self.folder, "-c", "max_connections=40"]
        log = (self.folder / "log").open("wb")
        with log:
            self._process = subprocess.Popen(
                [*self._as_user(), place / "postgres", "-D", data, *options], stdout=log, stderr=log
            )
        until_s = time.monotonic() + START_S
        while True:
            try:
                self._connect().close()
                return self
            except psycopg.OperationalError:
                alive = self._process.poll() is None and time.monotonic() < until_s
                assert alive, (self.folder / "log").read_text()
                time.sleep(0.02)  # the server tells nobody when it is ready

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Also in the middle of a test, as a server that goes away does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)  # it need not write down what is removed
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        self._databases += 1
        name = f"test_{self._databases}"
        with self._connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{self._user}@/{name}?host={self.folder}"

    def end_connections(self) -> None:
        """As an administrator does."""
        with self._connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            f"host={self.folder} user={self._user} dbname=postgres connect_timeout=100", autocommit=True
        )

    def _as_user(self) -> list[str]:
        if os.getuid() != 0:
            return []
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
