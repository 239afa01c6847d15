{{/* Listeners: each with its defaults, the names and ports that follow from them, and what cannot be right refused. */}}

{{/* One listener with its defaults and what follows from them, as YAML: (dict "root" $ "name" "main"). Adds `service.name`, `host` (what
     clients are told), `ports` (name → number, all of a Service), `tls.secret`, `dnsNames` and `hosts` (of Ingress and route). */}}
{{- define "kqp.listener" -}}
{{- $root := .root }}
{{- $name := .name }}
{{- $at := printf "listeners.%s" $name }}
{{- $given := index $root.Values.listeners $name | default dict }}
{{- $l := mergeOverwrite (deepCopy $root.Values.listenerDefaults) (deepCopy $given) }}
{{- $sni := eq $l.routing "sni" }}
{{- $service := ternary (include "kqp.fullname" $root) (printf "%s-%s" (include "kqp.fullname" $root) $name) (eq $name "main") }}
{{- $inside := printf "%s.%s.svc.%s" $service $root.Release.Namespace $root.Values.clusterDomain }}
{{- $_ := set $l.service "name" $service }}
{{- $host := $l.advertise }}
{{- $outside := or (ne $l.service.type "ClusterIP") $l.ingress.enabled $l.gateway.enabled }}
{{- if not $host }}
{{- if $outside }}{{ fail (printf "%s.advertise: set the host name at which clients outside the cluster reach this listener" $at) }}{{ end }}
{{- $host = $inside }}
{{- end }}
{{- $_ := set $l "host" $host }}
{{- if and $sni (not $l.tls.enabled) }}{{ fail (printf "%s.routing: sni needs %s.tls.enabled: brokers are told apart by the name in TLS" $at $at) }}{{ end }}
{{- if and (or $l.ingress.enabled $l.gateway.enabled) (not $sni) }}{{ fail (printf "%s: ingress and gateway have one port for all brokers: set %s.routing to sni, or use a Service of type LoadBalancer" $at $at) }}{{ end }}
{{- if and $sni (eq $host $inside) }}{{ fail (printf "%s.advertise: routing sni needs a host name of its own, for which DNS leads every broker's name to the Service" $at) }}{{ end }}
{{- if and $l.gateway.enabled (not $l.gateway.parentRefs) }}{{ fail (printf "%s.gateway.parentRefs: name the Gateway" $at) }}{{ end }}
{{- if and $l.proxyProtocol (eq $l.service.type "ClusterIP") (not $l.ingress.enabled) (not $l.gateway.enabled) }}{{ fail (printf "%s.proxyProtocol: nothing before a Service of type ClusterIP says who the client is" $at) }}{{ end }}
{{- if and $l.service.port (not $sni) (ne (int $l.service.port) (int $l.port)) }}{{ fail (printf "%s.service.port: with routing ports it is the listener's (%d): clients are told the ports that the proxy listens at" $at (int $l.port)) }}{{ end }}
{{- if $l.service.perBroker }}
{{- if ne $l.service.type "LoadBalancer" }}{{ fail (printf "%s.service.perBroker: it is for %s.service.type LoadBalancer" $at $at) }}{{ end }}
{{- if not (and $sni $l.brokerIds) }}{{ fail (printf "%s.service.perBroker: brokers have names of their own with %s.routing sni only, and their ids have to be in %s.brokerIds" $at $at $at) }}{{ end }}
{{- end }}
{{- if $l.tls.enabled }}
{{- if and (not $l.tls.existingSecret) (not $l.tls.certificate.enabled) }}{{ fail (printf "%s.tls: name the certificate's Secret in %s.tls.existingSecret, or let cert-manager make it with %s.tls.certificate.enabled" $at $at $at) }}{{ end }}
{{- if and $l.tls.certificate.enabled (not $l.tls.certificate.issuerRef) }}{{ fail (printf "%s.tls.certificate.issuerRef: name the issuer" $at) }}{{ end }}
{{- $_ := set $l.tls "secret" ($l.tls.existingSecret | default (printf "%s-tls" $service)) }}
{{- else if or $l.tls.existingSecret $l.tls.certificate.enabled $l.tls.clientCaSecret }}{{ fail (printf "%s.tls.enabled: it is false, and the certificate beside it would not be used" $at) }}
{{- end }}
{{- $ports := dict "bootstrap" (int $l.port) }}
{{- if not $sni }}
{{- $first := int $l.brokerPorts.first | default (add1 $l.port | int) }}
{{- $_ := set $l.brokerPorts "first" $first }}
{{- range $i := until (int $l.brokerPorts.count) }}
{{- $_ := set $ports (printf "broker-%d" $i) (add $first $i | int) }}
{{- end }}
{{- if gt (len $l.brokerIds) (int $l.brokerPorts.count) }}{{ fail (printf "%s.brokerPorts.count: %d ports are too few for %d brokerIds" $at (int $l.brokerPorts.count) (len $l.brokerIds)) }}{{ end }}
{{- $owners := dict }}
{{- $ids := list }}
{{- range $l.brokerIds }}{{ $ids = append $ids (int64 . | toString) }}{{ end }}
{{- range $id := keys $root.Values.upstream.brokers | sortAlpha }}
{{- if $l.brokerIds }}
{{- if not (has $id $ids) }}{{ fail (printf "%s.brokerIds: clients could not reach broker %s of upstream.brokers: name its id too" $at $id) }}{{ end }}
{{- else }}
{{- $place := mod (int64 $id) (int $l.brokerPorts.count) | toString }}
{{- if hasKey $owners $place }}{{ fail (printf "%s.brokerPorts: brokers %s and %s of upstream.brokers would have one port; name all ids in %s.brokerIds, or raise brokerPorts.count" $at (get $owners $place) $id $at) }}{{ end }}
{{- $_ := set $owners $place $id }}
{{- end }}
{{- end }}
{{- if gt (add $first (int $l.brokerPorts.count) -1 | int) 65535 }}{{ fail (printf "%s.brokerPorts: the last one is above 65535" $at) }}{{ end }}
{{- if and (le $first (int $l.port)) (gt (add $first (int $l.brokerPorts.count) | int) (int $l.port)) }}{{ fail (printf "%s.brokerPorts: the bootstrap port %d is among them" $at (int $l.port)) }}{{ end }}
{{- end }}
{{- if eq $l.service.type "NodePort" }}
{{- range $port := values $ports }}
{{- if or (lt (int $port) 30000) (gt (int $port) 32767) }}{{ fail (printf "%s.port: with service.type NodePort all ports have to be node ports (30000-32767 by default), as clients are told the ports that the proxy listens at; %d is not one" $at (int $port)) }}{{ end }}
{{- end }}
{{- end }}
{{- $_ := set $l "ports" $ports }}
{{- $brokers := list }}
{{- if $sni }}
{{- $pattern := $l.brokerName | replace "{advertise}" $host }}
{{- range $id := $l.brokerIds }}{{ $brokers = append $brokers ($pattern | replace "{id}" (toString $id)) }}{{ end }}
{{- if not $l.brokerIds }}
{{- $rest := regexReplaceAll "^[^.]*" $pattern "*" }}
{{- if contains "{id}" $rest }}{{ fail (printf "%s.brokerIds: name the brokers' ids: no wildcard stands for %s" $at $l.brokerName) }}{{ end }}
{{- $brokers = list $rest }}
{{- end }}
{{- end }}
{{- $_ := set $l "hosts" (prepend $brokers $host) }}
{{- $inner := list $inside (printf "%s.%s.svc" $service $root.Release.Namespace) (printf "%s.%s" $service $root.Release.Namespace) $service }}
{{- $_ := set $l "dnsNames" (concat $l.hosts $inner $l.tls.certificate.dnsNames | uniq) }}
{{- $_ := set $l "toldPort" (int $l.advertisePort | default (ternary 443 (int $l.service.port | default (int $l.port)) (or $l.ingress.enabled $l.gateway.enabled))) }}
{{- if and $l.advertisePort (not $sni) }}{{ fail (printf "%s.advertisePort: it is for routing sni; with ports clients are told the ports that the proxy listens at" $at) }}{{ end }}
{{- toYaml $l }}
{{- end }}

{{/* All listeners by name, as YAML; no two may have the same port. */}}
{{- define "kqp.listeners" -}}
{{- $all := dict }}
{{- $taken := dict (toString .Values.admin.port) "admin.port" }}
{{- if not (hasKey .Values.listeners "main") }}{{ fail "listeners.main: it is always there; {} has the defaults" }}{{ end }}
{{- range $name := keys .Values.listeners | sortAlpha }}
{{- $l := include "kqp.listener" (dict "root" $ "name" $name) | fromYaml }}
{{- range $port_name := keys $l.ports | sortAlpha }}
{{- $port := get $l.ports $port_name | int | toString }}
{{- if hasKey $taken $port }}{{ fail (printf "listeners.%s: port %s is taken by %s; keep them apart" $name $port (get $taken $port)) }}{{ end }}
{{- $_ := set $taken $port (printf "listeners.%s" $name) }}
{{- end }}
{{- $_ := set $all $name $l }}
{{- end }}
{{- toYaml $all }}
{{- end }}
