"""A real S3 server on loopback, VersityGW, which checks signatures, and Hadoop's connector S3A of this Spark's own version.

In: a folder. Out: a running server with one bucket, and the jars. Both are made once and kept in the cache folder: Go builds the
server in two minutes, the jars are 20 MB. A test is skipped, with the reason, where one cannot be had.
"""

import hashlib
import hmac
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from localkafka.guard import Guard
from localkafka.jars import cache_dir, locked
from localkafka.java import find_java
from localkafka.ports import HeldPort
from localkafka.resolver import FetchError, Package, resolve
from reports.remote import hadoop_version
from tests.real.go_programs import go_program

KEY, SECRET = "reader", "hush-this-is-secret"
REGION, BUCKET = "eu-central-1", "usage-log"
DEADLINE = 60.0
SDK, SDK_VERSION = "software.amazon.awssdk", "2.35.4"
"""The AWS SDK that hadoop-aws names. It names all of it, half a gigabyte; these are the parts that S3A calls."""
MODULES = ("s3", "s3-transfer-manager", "sts")
EXCLUDED = (Package(SDK, "bundle"), Package("org.slf4j", "slf4j-api"))


def connector() -> list[Path]:
    """The jars of the connector and of all that it needs beside Spark's own."""
    hadoop = hadoop_version()
    folder = cache_dir() / f"hadoop-aws-{hadoop}-{SDK_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, print):
        if not folder.exists():
            work = folder.with_name(f"{folder.name}.resolving")
            wanted = [Package("org.apache.hadoop", "hadoop-aws", hadoop), *(Package(SDK, name, SDK_VERSION) for name in MODULES)]
            try:
                resolve(wanted, EXCLUDED, work, find_java())
            except FetchError as error:
                pytest.skip(f"the connector of Hadoop {hadoop} cannot be fetched: {error}")
            (work / "jars").rename(folder)
            shutil.rmtree(work)
    return sorted(folder.glob("*.jar"))


@dataclass(frozen=True)
class S3Server:
    """A server that runs, with its bucket."""

    address: str

    def put(self, key: str, data: bytes) -> None:
        """Make or replace an object of the bucket."""
        self._put(f"/{BUCKET}/{quote(key)}", data)

    def _put(self, path: str, data: bytes) -> None:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self.address, "x-amz-content-sha256": hashlib.sha256(data).hexdigest(), "x-amz-date": now}
        scope, names = f"{now[:8]}/{REGION}/s3/aws4_request", ";".join(headers)
        lines = [f"{name}:{value}\n" for name, value in headers.items()]
        request = "\n".join(["PUT", path, "", "".join(lines), names, headers["x-amz-content-sha256"]])
        key = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        put = urllib.request.Request(f"http://{self.address}{path}", data, headers, method="PUT")
        urllib.request.urlopen(put, timeout=60).close()  # noqa: S310

    def make_bucket(self) -> None:
        """Make the bucket."""
        self._put(f"/{BUCKET}", b"")


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that keeps its objects in `folder`."""
    program = go_program(Path(__file__).parent / "go" / "versitygw", "github.com/versity/versitygw/cmd/versitygw")
    folder.mkdir()
    port = HeldPort()
    address = f"127.0.0.1:{port.number}"
    env = os.environ | {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with Guard() as guard, (folder.with_suffix(".log")).open("wb") as log:
        process = guard.popen(
            [str(program), "--port", address, "--region", REGION, "posix", str(folder)], env=env, stdout=log, stderr=log
        )
        server, deadline = S3Server(address), time.monotonic() + DEADLINE
        while True:
            try:
                server.make_bucket()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the S3 server did not start: {folder.with_suffix('.log').read_text()[-2000:]}")
                time.sleep(0.05)
        yield server
