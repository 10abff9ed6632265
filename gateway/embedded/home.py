"""The data directory: who holds it, where its parts live, and as whom the servers run."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOCKET_PATH_MAX = 90  # sun_path holds 107 octets; the socket's own name needs the rest
_OUTSIDE = (Path("/var/lib/sluicegate"), Path("/var/tmp/sluicegate"))
_UNPRIVILEGED = ("nobody", "daemon", "bin")


class DataDirectoryRefused(Exception):
    """The data directory cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom the servers run; None: as ourselves."""

    uid: int | None
    gid: int | None

    @property
    def dropped(self) -> bool:
        """True where we are root and the servers are not."""
        return self.uid is not None


def identity() -> Identity:
    """PostgreSQL refuses to run as root: then an unprivileged account that /etc/passwd knows (initdb looks it up).

    Raises DataDirectoryRefused where there is none.
    """
    if os.geteuid() != 0:
        return Identity(None, None)
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Identity(entry.pw_uid, entry.pw_gid)
    raise DataDirectoryRefused(
        "as root the embedded PostgreSQL needs an account like `nobody` in /etc/passwd:"
        " add one, or set SLUICEGATE_DATABASE_URL"
    )


class Home:
    """A data directory that this process holds alone until `release`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.identity = identity()
        self._lock: int | None = None

    def hold(self) -> None:
        """Makes the directory and takes its lock; raises DataDirectoryRefused where another run holds it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o711)  # whatever the umask: the servers' account must pass through
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirectoryRefused(
                f"{self.directory} is in use by another run (process {holder}):"
                " stop it first, or use another --data-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def release(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def stores(self) -> Path:
        """Where the servers' files live: inside, or outside behind a link where the servers' account cannot enter."""
        place = self.directory / "stores"
        if not place.exists():
            if place.is_symlink():
                raise DataDirectoryRefused(
                    f"{place} points to {os.readlink(place)}, which is gone:"
                    " restore it, or remove the link to start empty"
                )
            place.mkdir()
            place.chmod(0o711)
            if not self.enterable(place):
                place.rmdir()
                place.symlink_to(_make_outside(self.directory))
        return place.resolve()

    def own(self, name: str) -> Path:
        """A directory of the servers' account under `stores`, closed to others."""
        place = self.stores / name
        place.mkdir(mode=0o700, exist_ok=True)
        self.give(place)
        return place

    def give(self, path: Path) -> None:
        """Makes the servers' account the owner."""
        if self.identity.uid is not None and self.identity.gid is not None:
            os.chown(path, self.identity.uid, self.identity.gid)

    def enterable(self, directory: Path) -> bool:
        """True where the servers' account can reach this directory by its full name."""
        return self._as_server(["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)])

    def executable(self, program: Path) -> bool:
        """True where the servers' account can start this program."""
        return self._as_server([str(program), "--version"])

    def _as_server(self, arguments: list[str]) -> bool:
        who: dict[str, Any] = (
            {"user": self.identity.uid, "group": self.identity.gid, "extra_groups": []} if self.identity.dropped else {}
        )
        try:
            done = subprocess.run(
                arguments, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False, **who
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def socket_directory(self) -> Path:
        """Where unix sockets go; a short path in the temporary directory when the data directory's own is too long."""
        inside = self.stores / "run"
        if len(str(inside)) <= _SOCKET_PATH_MAX:
            return self.own("run")
        kept = self.recall("socket_directory")
        place = Path(kept) if kept else None
        if place is None or not place.is_dir():
            place = Path(tempfile.mkdtemp(prefix="sluicegate-", dir="/tmp"))
            self.give(place)
            self.remember("socket_directory", str(place))
        return place

    def secret(self, name: str, octets: int = 24) -> str:
        """A random password or key in hex, made once and kept."""
        kept = self.recall(name)
        return kept if kept is not None else self.remember(name, secrets.token_hex(octets))

    def recall(self, name: str) -> str | None:
        """What `remember` kept under this name."""
        try:
            kept = json.loads((self.directory / "state.json").read_text(encoding="utf-8")).get(name)
        except (OSError, ValueError):
            return None
        return None if kept is None else str(kept)

    def remember(self, name: str, value: str) -> str:
        """Keeps a word about this data directory over restarts (file mode 0600)."""
        path = self.directory / "state.json"
        try:
            state: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            state = {}
        state[name] = value
        write_private(path, json.dumps(state, indent=1))
        return value

    def log(self, name: str) -> Path:
        """A log file; the one before is kept once it is over 16 MiB."""
        folder = self.directory / "logs"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{name}.log"
        if path.exists() and path.stat().st_size > 16 * 1024 * 1024:
            path.replace(path.with_suffix(".log.1"))
        return path


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner may read, all or nothing."""
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _make_outside(origin: Path) -> Path:
    for parent in _OUTSIDE:
        try:
            parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            _forget_temporary(parent)
            place = Path(tempfile.mkdtemp(prefix=f"{origin.parent.name or 'data'}-", dir=parent))
        except OSError:
            continue
        place.chmod(0o711)
        (place / "origin").write_text(str(origin), encoding="utf-8")
        return place
    raise DataDirectoryRefused(
        f"the account of the embedded servers cannot enter {origin}, and no place outside could be made:"
        " use another --data-dir"
    )


def _forget_temporary(parent: Path) -> None:
    # Only what belonged to a data directory in the temporary directory, and that directory is gone.
    for place in parent.iterdir():
        try:
            origin = Path((place / "origin").read_text(encoding="utf-8"))
        except OSError:
            continue
        if origin.is_relative_to(tempfile.gettempdir()) and not (origin / "stores").is_symlink():
            shutil.rmtree(place, ignore_errors=True)
