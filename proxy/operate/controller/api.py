"""The Kubernetes API as the controller uses it. In: a pod's ServiceAccount, or a kubeconfig. Out: objects as they are in JSON;
`ApiError` with a reason for people. Only the kinds and verbs that the chart's roles allow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import yaml

from proxy.operate.controller.definition import GROUP, PLURAL, VERSION

TIMEOUT: Final = 10
"""Seconds for an answer."""
Object = dict[str, Any]


class Kind(NamedTuple):
    """Where the objects of a kind are."""

    group: str
    version: str
    plural: str


QUOTAS: Final = Kind(GROUP, VERSION, PLURAL)
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases")
EVENTS: Final = Kind("events.k8s.io", "v1", "events")


class ApiError(Exception):
    """The API server does not answer, or says no. `status`: of HTTP; 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Kubernetes:
    """The API server."""

    def __init__(self, objects: Any) -> None:
        self._objects = objects

    async def list(self, kind: Kind, namespace: str) -> list[Object]:
        """All objects of a namespace."""
        found = await _asked(
            self._objects.list_namespaced_custom_object(*kind[:2], namespace, kind.plural, _request_timeout=TIMEOUT)
        )
        return list(found["items"])

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object; None if it is not there."""
        try:
            return await _asked(
                self._objects.get_namespaced_custom_object(*kind[:2], namespace, kind.plural, name, _request_timeout=TIMEOUT)
            )
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        """What it is once it is there; status 409 when it is there already."""
        return await _asked(
            self._objects.create_namespaced_custom_object(*kind[:2], namespace, kind.plural, body, _request_timeout=TIMEOUT)
        )

    async def replace(self, kind: Kind, namespace: str, body: Object) -> Object:
        """Put this in its place; status 409 when another has altered it since it was read."""
        name = body["metadata"]["name"]
        return await _asked(
            self._objects.replace_namespaced_custom_object(*kind[:2], namespace, kind.plural, name, body, _request_timeout=TIMEOUT)
        )

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, *, status: bool = False) -> Object:
        """Merge this into an object, or into its status."""
        patch = self._objects.patch_namespaced_custom_object_status if status else self._objects.patch_namespaced_custom_object
        content = "application/merge-patch+json"
        return await _asked(patch(*kind[:2], namespace, kind.plural, name, body, _content_type=content, _request_timeout=TIMEOUT))

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Ask for its end."""
        await _asked(
            self._objects.delete_namespaced_custom_object(*kind[:2], namespace, kind.plural, name, _request_timeout=TIMEOUT)
        )


async def _asked(answer: Awaitable[Any]) -> Object:
    from kubernetes_asyncio.client.exceptions import ApiException

    try:
        found: Object = await answer
    except ApiException as e:
        raise ApiError(f"the API server says {e.status} {_message(e.body) or e.reason}", e.status or 0) from None
    except (aiohttp.ClientError, OSError, TimeoutError) as e:
        raise ApiError(f"the API server does not answer: {str(e) or type(e).__name__}") from None
    return found


def _message(body: str | bytes | None) -> str:
    """What a Status object says; empty when the answer is none."""
    try:
        return str(json.loads(body or "{}").get("message", ""))[:500]
    except (ValueError, AttributeError):
        return ""


@asynccontextmanager
async def kubernetes(kubeconfig: Path | None) -> AsyncIterator[Kubernetes]:
    """The API server of this pod, or of a kubeconfig."""
    from kubernetes_asyncio import client, config
    from kubernetes_asyncio.config.config_exception import ConfigException

    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    except (ConfigException, OSError) as e:
        raise ApiError(f"how to reach the API server is not known: {e}; outside of a pod give --kubeconfig") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):  # whatever else stands in the file
        raise ApiError(f"--kubeconfig {kubeconfig}: is not a kubeconfig") from None
    async with client.ApiClient(configuration) as connection:
        yield Kubernetes(client.CustomObjectsApi(connection))
