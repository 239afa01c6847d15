"""Images for pods, built by buildah. In: the working tree, Debian's packages. Out: archives in the cache folder, the proxy's new
each time. `python -m tests.pods.images` makes them; it needs root and the way to registries of packages, which the tests lack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from localkafka.jars import cache_dir
from tests.pods.node import PAUSE

ROOT = Path(__file__).parents[2]
BASE = "localhost/debian-python"
PROXY, REPORT = "localhost/kafka-quota-proxy:test", "localhost/kafka-quota-proxy-report:test"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
NEEDED = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "catatonit": "catatonit",
    "dnsmasq": "dnsmasq-base",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "haproxy": "haproxy",
}
"""Program → Debian's package. Besides them the bridge of containernetworking-plugins."""


def folder() -> Path:
    return cache_dir() / "chart" / "images"


def archive(name: str) -> Path:
    return folder() / f"{name}.tar"


def missing() -> list[str]:
    """Debian's packages that pods need, and that are not there."""
    packages = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return packages + ([] if Path("/usr/lib/cni/bridge").exists() else ["containernetworking-plugins"])


def buildah(*arguments: str) -> str:
    """What it prints. Its images and containers are in the cache folder, apart from the machine's."""
    storage = ("--root", str(folder() / "storage"), "--runroot", str(folder() / "run"))
    done = subprocess.run(["buildah", *storage, *arguments], stdout=subprocess.PIPE, text=True, timeout=1800, check=True, cwd=ROOT)
    return done.stdout.strip()


def make_base() -> None:
    """Once: what stands for the slim image of Python that the Dockerfile takes where a registry is in reach."""
    if BASE in buildah("images", "--format", "{{.Name}}"):
        return
    wrapper = folder() / "bin"
    wrapper.mkdir(exist_ok=True)
    program = wrapper / "buildah"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("buildah")} --root "{folder()}/storage" --runroot "{folder()}/run" "$@"\n')
    program.chmod(0o755)
    path = f"{wrapper}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([ROOT / "deploy" / "image" / "base.sh", BASE], env={**os.environ, "PATH": path}, check=True, timeout=600)


def build(target: str, name: str) -> None:
    """One target of the Dockerfile. The machine's certificate authorities hold in the build too, and are not in the image."""
    options = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--layers", "--build-arg", f"BASE={BASE}"]
    options += ["--ignorefile", "deploy/image/Dockerfile.dockerignore", "--file", "deploy/image/Dockerfile", "--target", target]
    if AUTHORITIES.exists():
        options += ["--volume", f"{AUTHORITIES}:{AUTHORITIES}:ro", "--env", f"PIP_CERT={AUTHORITIES}"]
    buildah("build", *options, "--tag", name, ".")


def save(name: str, file: Path) -> None:
    file.unlink(missing_ok=True)
    buildah("push", "--quiet", name, f"oci-archive:{file}:{name}")


def make_pause() -> None:
    """What holds the namespaces of a pod."""
    container = buildah("from", "scratch")
    buildah("copy", "--quiet", container, str(shutil.which("catatonit")), "/pause")
    buildah("config", "--entrypoint", '["/pause","-P"]', container)
    buildah("commit", "--quiet", "--rm", container, PAUSE)


def main() -> int:
    if packages := missing():
        print(f"pods need: apt-get install --no-install-recommends {' '.join(packages)}", file=sys.stderr)
        return 1
    folder().mkdir(parents=True, exist_ok=True)
    make_base()
    make_pause()
    save(PAUSE, archive("pause"))
    for target, name in (("proxy", PROXY), ("report", REPORT)):
        build(target, name)
        save(name, archive(target))
    print(f"images are in {folder().name}: {buildah('images', '--format', '{{.Name}}:{{.Tag}} {{.Size}}')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
