"""A node of Kubernetes on this machine: containerd, kubelet, a scheduler, controllers, kube-proxy and a DNS server, around a real
API server. In: programs, images, a folder. Out: a cluster in which pods run.

All of it is in namespaces of its own for network, mounts and processes, which `make test-pods` makes (`unshare`): addresses,
routes, rules of the firewall, mounts, and what pods leave running are gone when the tests end. Cgroups are the machine's, under a
name that no other run has, and removed at the end. There is one bridge, whose address stands for everything outside of pods: there
brokers and clients are. A host that has no other way in than the cluster's own is in `outside.py`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.chart.apiserver import ApiServer, Part
from tests.pods.outside import NETWORK

HOST = "10.244.0.1"
"""The node, on the bridge to its pods."""
PODS, SERVICES = "10.244.0.0/24", "10.96.0.0/16"
DOMAIN = "cluster.local"
CGROUP = f"kqp-test-{secrets.token_hex(4)}"
"""A kubelet ends what it does not know in its own."""
PAUSE = "localhost/pause:1"
CONTROL = ("etcd", "kube-apiserver", "kubectl")


class Node:
    """A context manager. `programs` has all of CONTROL and NODE_TOOLS."""

    def __init__(self, programs: dict[str, Path], folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self.server = ApiServer(
            programs, folder / "server", "--service-cluster-ip-range=" + SERVICES, "--kubelet-preferred-address-types=InternalIP"
        )
        self._socket = folder / "c.sock"
        self._parts: list[Part] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._network()
        self.server.__enter__()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _network(self) -> None:
        """One bridge; nothing leads anywhere else."""
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "cni0", "type", "bridge")
        run("ip", "address", "add", f"{HOST}/24", "dev", "cni0")
        run("ip", "link", "set", "cni0", "up")
        run("ip", "route", "add", SERVICES, "dev", "cni0")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        resolv = self._folder / "resolv.conf"
        resolv.write_text(f"nameserver {HOST}\n")
        run("mount", "--bind", str(resolv), "/etc/resolv.conf")

    def _start(self) -> None:
        folder, server = self._folder, self.server
        kubeconfig = f"--kubeconfig={server.kubeconfig}"
        self._run(
            "kube-controller-manager",
            kubeconfig,
            "--leader-elect=false",
            f"--service-account-private-key-file={server.accounts_key}",
            f"--root-ca-file={folder / 'server' / 'certificates' / 'apiserver.crt'}",
            "--use-service-account-credentials=false",
            "--secure-port=0",
        )
        self._run("kube-scheduler", kubeconfig, "--leader-elect=false", "--secure-port=0")
        names = folder / "names"
        names.mkdir()
        self._run_plain(
            "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--hostsdir={names}", f"--listen-address={HOST}",
            "--bind-interfaces", "--user=root", "--group=root", f"--local=/{DOMAIN}/", "--pid-file",
        )  # fmt: skip
        self._run_containerd()
        self._run_kubelet(kubeconfig)
        self._run_proxy()
        server.wait(lambda: server.kubectl("get", "node", "node", check=False).returncode == 0, "the node to be there")
        server.kubectl("wait", "--for=condition=Ready", "node/node", "--timeout=120s")

    def _run_containerd(self) -> None:
        folder = self._folder
        networks = folder / "networks"
        networks.mkdir()
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True}
        bridge["ipam"] = {
            "type": "host-local",
            "subnet": PODS,
            "dataDir": str(folder / "addresses"),
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (networks / "pods.conflist").write_text(json.dumps(network))
        shims = folder / "bin"
        shims.mkdir()
        (shims / "containerd-shim-runc-v2").symlink_to(self._programs["containerd-shim-runc-v2"])
        config = folder / "containerd.toml"
        config.write_text(f"""
version = 3
root = "{folder}/containers"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{networks}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{shutil.which("runc")}"
      SystemdCgroup = false
""")
        path = f"{shims}{os.pathsep}{os.environ['PATH']}"
        command = ["env", f"PATH={path}", str(self._programs["containerd"]), f"--config={config}"]
        self._parts.append(Part(command, folder / "containerd.log"))
        self.wait(lambda: self._ctr("version", check=False) == 0, "containerd")

    def _run_kubelet(self, kubeconfig: str) -> None:
        folder = self._folder
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": HOST,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": ["pods"],
            "clusterDNS": [HOST],
            "clusterDomain": DOMAIN,
            "resolvConf": str(folder / "resolv.conf"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "failSwapOn": False,
            "podLogsDir": str(folder / "logs"),
            "syncFrequency": "5s",
            "configMapAndSecretChangeDetectionStrategy": "Watch",
        }
        file = folder / "kubelet.yaml"
        file.write_text(yaml.safe_dump(config))
        for controller in Path("/sys/fs/cgroup").iterdir():
            if (controller / "cgroup.procs").exists():
                (controller / CGROUP).mkdir(exist_ok=True)
        cpuset = Path("/sys/fs/cgroup/cpuset")
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (cpuset / name).exists():
                (cpuset / CGROUP / name).write_text((cpuset / name).read_text())
        self._run(
            "kubelet",
            f"--config={file}",
            kubeconfig,
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-certificates'}",
            f"--node-ip={HOST}",
            "--hostname-override=node",
        )

    def _run_proxy(self) -> None:
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.server.kubeconfig)},
            "mode": "nftables",
            "clusterCIDR": PODS,
            "hostnameOverride": "node",
            "nodePortAddresses": [NETWORK],
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "metricsBindAddress": "127.0.0.1:10249",
            "healthzBindAddress": "",
        }
        file = self._folder / "kube-proxy.yaml"
        file.write_text(yaml.safe_dump(config))
        self._run("kube-proxy", f"--config={file}")

    def _run(self, name: str, *flags: str) -> None:
        self._parts.append(Part([str(self._programs[name]), *flags], self._folder / f"{name}.log"))

    def _run_plain(self, name: str, *flags: str) -> None:
        self._parts.append(Part([str(shutil.which(name)), *flags], self._folder / f"{name}.log"))

    def _ctr(self, *arguments: str, check: bool = True) -> int:
        command = [self._programs["ctr"], "--address", self._socket, "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.returncode

    def program(self, name: str) -> Path:
        return self._programs[name]

    def wait(self, condition: Any, what: str, limit: float = 120.0) -> Any:
        """As of the API server, with what the other parts say when it is in vain."""
        try:
            return self.server.wait(condition, what, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(part.tail() for part in self._parts)) from None

    def load(self, archives: Iterable[Path]) -> None:
        """Images, as buildah writes them to a file."""
        for archive in archives:
            self._ctr("images", "import", "--snapshotter=overlayfs", str(archive))

    def name(self, service: str, namespace: str, address: str) -> None:
        """What a cluster's DNS does: the Service's name, in full, leads to its address."""
        (self._folder / "names" / f"{namespace}-{service}").write_text(f"{address} {service}.{namespace}.svc.{DOMAIN}\n")

    def _stop(self) -> None:
        self._end_pods()
        for part in reversed(self._parts):
            part.stop()
        self.server.__exit__(None, None, None)
        for mount in sorted(mounts_below(self._folder), key=len, reverse=True):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        for controller in Path("/sys/fs/cgroup").iterdir():
            for folder in sorted((controller / CGROUP).rglob("*"), reverse=True):
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            with contextlib.suppress(OSError):
                (controller / CGROUP).rmdir()

    def _end_pods(self) -> None:
        """Pods would go on without their kubelet."""
        self.server.kubectl(
            "delete", "deployment,statefulset,cronjob,job,pod", "--all", "--all-namespaces", "--wait=false", check=False
        )
        self.server.kubectl("delete", "pod", "--all", "--all-namespaces", "--force", "--grace-period=0", check=False)
        command = [self._programs["ctr"], "--address", self._socket, "--namespace", "k8s.io", "tasks", "list", "--quiet"]

        def tasks() -> list[str]:
            return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout.split()

        with contextlib.suppress(AssertionError):
            self.server.wait(lambda: not tasks(), "pods to end", 60)
        for task in tasks():
            self._ctr("tasks", "kill", "--signal", "SIGKILL", task, check=False)


def mounts_below(folder: Path) -> list[str]:
    """Where something is mounted in a folder."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
