"""The scheduler's scripts on Debian's own redis-server: every test that needs only the index runs once more, on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

pytestmark = pytest.mark.interop
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def redis7() -> Iterator[str]:
    """URL of a redis-server without persistence, on a unix socket."""
    program = shutil.which("redis-server")
    assert program is not None, "redis-server is needed (Debian: apt-get install redis-server)"
    with tempfile.TemporaryDirectory(prefix="redis7-") as directory:
        socket = Path(directory) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", directory]
        server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                for _ in range(200):
                    try:
                        client.ping()
                        break
                    except redis.exceptions.ConnectionError:
                        time.sleep(0.05)
                version = client.info("server")["redis_version"]
                assert int(str(version).partition(".")[0]) >= 7, version
            yield f"unix://{socket}?db=0"
        finally:
            server.terminate()
            server.wait(10)


@pytest.mark.timeout(1_500)
def test_the_scripts_pass_their_tests_on_redis_7(redis7: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["tests/integration/scheduler", "tests/property/scheduler"]
    environment = {**os.environ, "TEST_REDIS_URL": redis7}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_200, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4_000:] + ended.stderr[-1_000:]
