"""Values that cannot be right are refused before anything is installed, with a message that names the value and says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import CHART, Helm, Refused

DEFAULT = CHART / "ci" / "default-values.yaml"


def main(**listener: Any) -> dict[str, Any]:
    return {"listeners": {"main": listener}}


TLS = {"enabled": True, "existingSecret": "tls"}
SNI: dict[str, Any] = {"routing": "sni", "advertise": "kafka.example.com", "tls": TLS}
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a key that is not there": ({"replicas": 3}, ["replicas"]),
    "one deeper down": (main(service={"typ": "NodePort"}), ["service", "typ"]),
    "a setting that is not there": ({"settings": {"limits": {"max_frames": "1MiB"}}}, ["settings", "limits", "max_frames"]),
    "a quota that is not there": (
        {"settings": {"quotas": {"entities": [{"user": "a", "mutations": 1}]}}},
        ["settings", "quotas", "entities", "mutations"],
    ),
    "a setting of the chart": ({"settings": {"listen": {"bootstrap": "0.0.0.0:1"}}}, ["settings", "listen"]),
    "a password": ({"settings": {"upstream": {"sasl": {"password": "x"}}}}, ["settings", "upstream", "sasl"]),
    "a drain of its own": ({"settings": {"limits": {"drain_timeout": "5s"}}}, ["limits", "drain_timeout"]),
    "a number as text": ({"replicaCount": "two"}, ["replicaCount"]),
    "a port": (main(port=70000), ["port"]),
    "no brokers": ({"upstream": {"bootstrapServers": []}}, ["upstream.bootstrapServers: which cluster?"]),
    "a broker without port": ({"upstream": {"bootstrapServers": ["kafka"]}}, ["bootstrapServers"]),
    "no main": ({"listeners": {"main": None}}, ["main"]),
    "a name that is too long": ({"listeners": {"main": {}, "far-too-long-a-name": {"port": 9}}}, ["far-too-long-a-name"]),
    "nothing to tell clients outside": (main(service={"type": "LoadBalancer"}), ["listeners.main.advertise: set the host name"]),
    "SNI without TLS": (main(routing="sni", advertise="a.b"), ["listeners.main.routing: sni needs listeners.main.tls.enabled"]),
    "SNI without name": (main(routing="sni", tls=TLS), ["listeners.main.advertise: routing sni needs a host name"]),
    "a wildcard that nothing stands for": (
        main(**SNI | {"brokerName": "kafka.b{id}.example.com"}),
        ["listeners.main.brokerIds: name the brokers' ids"],
    ),
    "a load balancer for each port": (
        main(advertise="a.b", service={"type": "LoadBalancer", "perBroker": True}),
        ["listeners.main.service.perBroker: brokers have names of their own with listeners.main.routing sni"],
    ),
    "a load balancer for each broker of which there are none": (
        main(**SNI | {"service": {"type": "LoadBalancer", "perBroker": True}}),
        ["their ids have to be in listeners.main.brokerIds"],
    ),
    "a Service inside for each broker": (
        main(**SNI | {"brokerIds": [0], "service": {"perBroker": True}}),
        ["listeners.main.service.perBroker: it is for listeners.main.service.type LoadBalancer"],
    ),
    "an Ingress by ports": (main(advertise="a.b", ingress={"enabled": True}), ["set listeners.main.routing to sni"]),
    "no Gateway": (main(**SNI | {"gateway": {"enabled": True}}), ["listeners.main.gateway.parentRefs"]),
    "TLS without certificate": (main(tls={"enabled": True}), ["listeners.main.tls: name the certificate's Secret"]),
    "a certificate without TLS": (main(tls={"existingSecret": "x"}), ["listeners.main.tls.enabled: it is false"]),
    "a certificate without issuer": (
        main(tls={"enabled": True, "certificate": {"enabled": True}}),
        ["listeners.main.tls.certificate.issuerRef"],
    ),
    "PROXY protocol from anybody": (main(proxyProtocol=True), ["listeners.main.proxyProtocol"]),
    "another port than is told": (main(service={"port": 80}), ["listeners.main.service.port", "9192"]),
    "a told port by ports": (main(advertisePort=443), ["listeners.main.advertisePort: it is for routing sni"]),
    "ports that no node has": (main(advertise="a.b", service={"type": "NodePort"}), ["30000-32767"]),
    "the bootstrap port among the brokers'": (main(brokerPorts={"first": 9190, "count": 5}), ["the bootstrap port 9192"]),
    "ports above the last": (main(port=65530), ["listeners.main.brokerPorts: the last one is above 65535"]),
    "a port twice": ({"listeners": {"main": {}, "more": {"port": 9195}}}, ["port 9195 is taken by listeners.main"]),
    "the admin port": ({"admin": {"port": 9195}}, ["port 9195 is taken by admin.port"]),
    "a login without Secret": ({"upstream": {"sasl": {"mechanism": "PLAIN", "username": "a"}}}, ["upstream.sasl.existingSecret"]),
    "a login without user": ({"upstream": {"sasl": {"mechanism": "PLAIN", "existingSecret": "a"}}}, ["upstream.sasl.username"]),
    "a token with a user": (
        {"upstream": {"sasl": {"mechanism": "OAUTHBEARER", "username": "a", "existingSecret": "a"}}},
        ["upstream.sasl.username: OAUTHBEARER has none"],
    ),
    "a login without mechanism": ({"upstream": {"sasl": {"username": "a"}}}, ["upstream.sasl.mechanism"]),
    "authorities without TLS": ({"upstream": {"tls": {"caSecret": "a"}}}, ["upstream.tls.enabled: it is false"]),
    "a replica's volume of a Deployment": ({"usageLog": {"enabled": True, "volume": "replica"}}, ["set kind to StatefulSet"]),
    "a StatefulSet without": ({"kind": "StatefulSet", "usageLog": {"enabled": True}}, ["usageLog.volume", "set it to replica"]),
    "a load test with two scenarios": (
        {"loadTest": {"enabled": True, "definition": {"phases": []}}},
        ["loadTest: scenario", "one of them"],
    ),
    "a load test of nothing": ({"loadTest": {"enabled": True, "scenario": ""}}, ["loadTest.scenario: which one?"]),
    "a hook that judges a share": ({"loadTest": {"enabled": True, "helmTest": True, "drivers": 2}}, ["set loadTest.drivers to 1"]),
    "a hook of nothing": ({"loadTest": {"helmTest": True}}, ["set loadTest.enabled to true"]),
    "a load test that cannot get in": (
        {"loadTest": {"enabled": True}, "listeners": {"main": {"tls": {"enabled": True, "existingSecret": "a"}}}},
        ["loadTest.existingSecret: the listener main has TLS"],
    ),
    "a log to nowhere": ({"usageLog": {"enabled": True, "volume": "none"}}, ["usageLog.topic: with volume none"]),
    "a topic's name": ({"usageLog": {"enabled": True, "topic": "a topic"}}, ["usageLog", "topic"]),
    "a broker without id": ({"upstream": {"brokers": {"one": "kafka-1:9092"}}}, ["brokers", "one"]),
    "a broker by id without port": ({"upstream": {"brokers": {"1": "kafka-1"}}}, ["brokers", "kafka-1"]),
    "two brokers for one port": (
        {"upstream": {"brokers": {"101": "a:9092", "201": "b:9092"}}},
        ["listeners.main.brokerPorts: brokers 101 and 201", "listeners.main.brokerIds"],
    ),
    "a broker that is not among the ids": (
        {"upstream": {"brokers": {"1": "a:9092"}}, **main(brokerIds=[2])},
        ["listeners.main.brokerIds: clients could not reach broker 1"],
    ),
    "more ids than ports": (main(brokerIds=[1, 2, 3], brokerPorts={"count": 2}), ["2 ports are too few for 3 brokerIds"]),
    "a report of nothing": ({"report": {"enabled": True}}, ["report.enabled", "set usageLog.enabled to true", "report.logs"]),
    "a report of a topic alone": (
        {"report": {"enabled": True}, "usageLog": {"enabled": True, "volume": "none", "topic": "usage"}},
        ["report.enabled", "report.logs to where it is"],
    ),
    "a report to nowhere": ({"report": {"enabled": True, "logs": "kafka://a:1/b"}}, ["report.existingClaim"]),
    "a report of no place": ({"report": {"enabled": True, "logs": "usage"}}, ["report", "logs"]),
    "a driver without rights": (
        {"report": {"enabled": True, "kind": "SparkApplication", "logs": "s3a://a/b", "existingClaim": "c"}},
        ["report.spark.serviceAccount: a SparkApplication needs one"],
    ),
    "a setting of Spark that is no text": ({"report": {"spark": {"conf": {"spark.ui.enabled": False}}}}, ["report", "conf"]),
    "scaling by nothing": (
        {"autoscaling": {"enabled": True, "targetProcessorPercentage": 0}},
        ["autoscaling: by what?"],
    ),
    "most below fewest": ({"autoscaling": {"enabled": True, "maxReplicas": 1}}, ["autoscaling.maxReplicas: 1 is below"]),
    "scaling by a request that is not there": (
        {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}},
        ["resources.requests.cpu"],
    ),
    "scaling by what is never reached": (
        {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 240}, "resources": {"requests": {"cpu": 1}}},
        ["autoscaling.targetCPUUtilizationPercentage: a proxy with these workers uses 100% of its CPU request at the most"],
    ),
    "scaling by more than memory has workers for": (
        {
            "autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 70},
            "resources": {"requests": {"cpu": "8"}},
            "settings": {"limits": {"memory_total": "512MiB"}},
        },
        ["uses 62% of its CPU request at the most"],
    ),
    "a ledger nowhere": ({"ledger": {"kind": "redis"}}, ["ledger.servers: which Redis?", "redis.enabled"]),
    "a Redis that nobody uses": ({"ledger": {"kind": "kafka"}, "redis": {"enabled": True}}, ["redis.enabled: nobody would use it"]),
    "servers that nobody uses": (
        {"ledger": {"kind": "local", "servers": ["redis:6379"]}},
        ["ledger.servers: nobody would use them"],
    ),
    "two Redis": (
        {"ledger": {"kind": "redis", "servers": ["redis:6379"]}, "redis": {"enabled": True}},
        ["ledger.servers", "chart's own"],
    ),
    "a login at the chart's Redis": (
        {"ledger": {"kind": "redis", "existingSecret": "a"}, "redis": {"enabled": True}},
        ["redis.enabled: the chart's own Redis has neither login nor TLS"],
    ),
    "several that are one": ({"ledger": {"kind": "redis", "servers": ["a:1", "b:1"]}}, ["ledger.mode", "sentinel or cluster"]),
    "sentinels without a name": ({"ledger": {"kind": "redis", "mode": "sentinel", "servers": ["a:1"]}}, ["ledger.sentinelMaster"]),
    "a user of Redis without password": (
        {"ledger": {"kind": "redis", "servers": ["a:1"], "username": "u"}},
        ["ledger.existingSecret"],
    ),
    "authorities of Redis without TLS": (
        {"ledger": {"kind": "redis", "servers": ["a:1"], "tls": {"caSecret": "a"}}},
        ["ledger.tls.enabled: it is false"],
    ),
    "a password of Redis in the settings": ({"settings": {"ledger": {"password": "x"}}}, ["settings", "ledger", "password"]),
    "workers among the settings": ({"settings": {"workers": 2}}, ["settings", "workers"]),
    "no workers": ({"workers": 0}, ["workers"]),
    "monitors that cannot get in": (
        {"monitoring": {"podMonitor": {"enabled": True}}},
        ["networkPolicy.adminFrom: Prometheus could not reach the admin port"],
    ),
    "a token without Secret": ({"admin": {"auth": {"usersKey": "users"}}}, ["admin.auth.existingSecret"]),
    "a login for nobody": ({"admin": {"auth": {"existingSecret": "a", "tokenKey": ""}}}, ["admin.auth.tokenKey"]),
    "a size that is none": ({"settings": {"limits": {"max_frame": "1 meg"}}}, ["settings", "limits", "max_frame"]),
    "a duration that is none": ({"settings": {"limits": {"idle_timeout": "ten minutes"}}}, ["limits", "idle_timeout"]),
    "a duration without unit": ({"settings": {"limits": {"idle_timeout": 600}}}, ["limits", "idle_timeout"]),
}


@pytest.mark.parametrize(("values", "told"), WRONG.values(), ids=WRONG)
def test_it_is_refused(helm: Helm, values: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        helm.template(DEFAULT, values=values)
    assert [part for part in told if part not in str(refused.value)] == []
