{{/* The settings file of the proxy: what the values say of it, and what the chart knows. */}}

{{- define "kqp.listenSettings" -}}
{{- $l := .listener }}
{{- $out := dict "bootstrap" (printf "%s:%d" .root.Values.bindAddress (int $l.port)) "advertise" $l.host }}
{{- if eq $l.routing "sni" }}
{{- $out = merge $out (dict "routing" "sni" "broker_name" $l.brokerName "advertise_port" (int $l.toldPort)) }}
{{- else }}
{{- $first := int $l.brokerPorts.first }}
{{- $out = merge $out (dict "broker_ports" (printf "%d-%d" $first (add $first (int $l.brokerPorts.count) -1 | int))) }}
{{- if $l.brokerIds }}{{ $_ := set $out "broker_ids" $l.brokerIds }}{{ end }}
{{- end }}
{{- if $l.proxyProtocol }}{{ $_ := set $out "proxy_protocol" true }}{{ end }}
{{- if $l.tls.enabled }}
{{- $folder := printf "/etc/kafka-quota-proxy/listener-%s" .name }}
{{- $tls := dict "cert_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) "min_version" $l.tls.minVersion }}
{{- if $l.tls.clientCaSecret }}
{{- $tls = merge $tls (dict "client_ca_file" (printf "%s-clients/%s" $folder $l.tls.clientCaKey) "client_auth" $l.tls.clientAuth "principal_mapping_rules" $l.tls.principalMappingRules) }}
{{- end }}
{{- $_ := set $out "tls" $tls }}
{{- end }}
{{- toYaml $out }}
{{- end }}

{{/* The section `admin`. */}}
{{- define "kqp.adminSettings" -}}
{{- $out := dict "listen" (printf "%s:%d" .Values.bindAddress (int .Values.admin.port)) }}
{{- with .Values.admin.auth }}
{{- if .existingSecret }}
{{- if not (or .tokenKey .usersKey) }}{{ fail "admin.auth.tokenKey: name the key of the token, or admin.auth.usersKey: nobody could log in" }}{{ end }}
{{- $auth := dict }}
{{- if .tokenKey }}{{ $_ := set $auth "token_file" (printf "/etc/kafka-quota-proxy/admin-auth/%s" .tokenKey) }}{{ end }}
{{- if .usersKey }}{{ $_ := set $auth "users_file" (printf "/etc/kafka-quota-proxy/admin-auth/%s" .usersKey) }}{{ end }}
{{- $_ := set $out "auth" $auth }}
{{- else if .usersKey }}{{ fail "admin.auth.existingSecret: name the Secret with the key of admin.auth.usersKey" }}
{{- end }}
{{- end }}
{{- if .Values.admin.tls.existingSecret }}
{{- $_ := set $out "tls" (dict "cert_file" "/etc/kafka-quota-proxy/admin-tls/tls.crt" "key_file" "/etc/kafka-quota-proxy/admin-tls/tls.key") }}
{{- end }}
{{- toYaml $out }}
{{- end }}

{{/* The section `ledger`, of ledger.kind: redis. */}}
{{- define "kqp.ledgerSettings" -}}
{{- $l := .Values.ledger }}
{{- $out := dict "kind" "redis" "mode" $l.mode }}
{{- if .Values.redis.enabled }}
{{- if $l.servers }}{{ fail "ledger.servers: with redis.enabled it is the chart's own Redis; leave out one of them" }}{{ end }}
{{- if or $l.existingSecret $l.username $l.tls.enabled (ne $l.mode "single") }}
{{- fail "redis.enabled: the chart's own Redis has neither login nor TLS and is alone; name yours in ledger.servers in its place" }}
{{- end }}
{{- $_ := set $out "servers" (list (printf "%s-redis:%d" (include "kqp.fullname" .) (int .Values.redis.port))) }}
{{- else }}
{{- if not $l.servers }}{{ fail "ledger.servers: which Redis? name it as host:port, or have one made for a trial with redis.enabled" }}{{ end }}
{{- $_ := set $out "servers" $l.servers }}
{{- end }}
{{- if and (eq $l.mode "single") (gt (len $l.servers) 1) }}{{ fail "ledger.mode: single has one server; set it to sentinel or cluster" }}{{ end }}
{{- if ne (eq $l.mode "sentinel") (not (empty $l.sentinelMaster)) }}{{ fail "ledger.sentinelMaster: it is for ledger.mode sentinel, which needs it" }}{{ end }}
{{- if $l.sentinelMaster }}{{ $_ := set $out "sentinel_master" $l.sentinelMaster }}{{ end }}
{{- if and $l.username (not $l.existingSecret) }}{{ fail "ledger.existingSecret: name the Secret with the password of ledger.username" }}{{ end }}
{{- if $l.username }}{{ $_ := set $out "username" $l.username }}{{ end }}
{{- if $l.existingSecret }}{{ $_ := set $out "password_file" (printf "/etc/kafka-quota-proxy/ledger/%s" $l.key) }}{{ end }}
{{- if $l.sentinelUsername }}{{ $_ := set $out "sentinel_username" $l.sentinelUsername }}{{ end }}
{{- if $l.sentinelSecret }}{{ $_ := set $out "sentinel_password_file" (printf "/etc/kafka-quota-proxy/ledger-sentinel/%s" $l.sentinelKey) }}{{ end }}
{{- if $l.tls.enabled }}
{{- $tls := dict "verify_hostname" $l.tls.verifyHostname }}
{{- if $l.tls.caSecret }}{{ $_ := set $tls "ca_file" (printf "/etc/kafka-quota-proxy/ledger-ca/%s" $l.tls.caKey) }}{{ end }}
{{- if $l.tls.certSecret }}{{ $tls = merge $tls (dict "cert_file" "/etc/kafka-quota-proxy/ledger-cert/tls.crt" "key_file" "/etc/kafka-quota-proxy/ledger-cert/tls.key") }}{{ end }}
{{- $_ := set $out "tls" $tls }}
{{- else if or $l.tls.caSecret $l.tls.certSecret }}{{ fail "ledger.tls.enabled: it is false, and the Secret beside it would not be used" }}
{{- end }}
{{- toYaml $out }}
{{- end }}

{{/* The whole file, as YAML. */}}
{{- define "kqp.settings" -}}
{{- $listeners := include "kqp.listeners" . | fromYaml }}
{{- $s := deepCopy .Values.settings }}
{{- if not .Values.upstream.bootstrapServers }}{{ fail "upstream.bootstrapServers: which cluster? name some brokers, such as --set 'upstream.bootstrapServers={kafka-0.kafka:9092}'" }}{{ end }}
{{- $upstream := merge (dict "bootstrap_servers" .Values.upstream.bootstrapServers) ($s.upstream | default dict) }}
{{- with .Values.upstream.brokers }}{{ $_ := set $upstream "brokers" . }}{{ end }}
{{- with .Values.upstream.tls }}
{{- if .enabled }}
{{- $tls := dict "verify_hostname" .verifyHostname }}
{{- if .caSecret }}{{ $_ := set $tls "ca_file" (printf "/etc/kafka-quota-proxy/upstream-ca/%s" .caKey) }}{{ end }}
{{- if .certSecret }}{{ $tls = merge $tls (dict "cert_file" "/etc/kafka-quota-proxy/upstream-cert/tls.crt" "key_file" "/etc/kafka-quota-proxy/upstream-cert/tls.key") }}{{ end }}
{{- $_ := set $upstream "tls" $tls }}
{{- else if or .caSecret .certSecret }}{{ fail "upstream.tls.enabled: it is false, and the Secret beside it would not be used" }}
{{- end }}
{{- end }}
{{- with .Values.upstream.sasl }}
{{- if .mechanism }}
{{- if not .existingSecret }}{{ fail "upstream.sasl.existingSecret: name the Secret with the password or token" }}{{ end }}
{{- $file := printf "/etc/kafka-quota-proxy/upstream-sasl/%s" .key }}
{{- if eq .mechanism "OAUTHBEARER" }}
{{- if .username }}{{ fail "upstream.sasl.username: OAUTHBEARER has none, who it is stands in the token" }}{{ end }}
{{- $_ := set $upstream "sasl" (dict "mechanism" .mechanism "token_file" $file) }}
{{- else }}
{{- if not .username }}{{ fail (printf "upstream.sasl.username: %s needs one" .mechanism) }}{{ end }}
{{- $_ := set $upstream "sasl" (dict "mechanism" .mechanism "username" .username "password_file" $file) }}
{{- end }}
{{- else if or .existingSecret .username }}{{ fail "upstream.sasl.mechanism: none is set, and what is beside it would not be used" }}
{{- end }}
{{- end }}
{{- $_ := set $s "upstream" $upstream }}
{{- $kind := include "kqp.ledgerKind" . | trim }}
{{- $replicas := include "kqp.replicas" . | int }}
{{- if eq $kind "redis" }}
{{- $_ := set $s "ledger" (merge (include "kqp.ledgerSettings" . | fromYaml) ($s.ledger | default dict)) }}
{{- else if .Values.redis.enabled }}{{ fail "redis.enabled: nobody would use it; set ledger.kind to redis, or leave it out" }}
{{- else if .Values.ledger.servers }}{{ fail "ledger.servers: nobody would use them; set ledger.kind to redis, or leave it out" }}
{{- else if eq $kind "kafka" }}
{{- $_ := set $s "ledger" (merge (dict "kind" "kafka") ($s.ledger | default dict)) }}
{{- else if gt $replicas 1 }}
{{- /* so that each of them says in its log and its metrics that it counts for itself */}}
{{- $_ := set $s "ledger" (merge ($s.ledger | default dict) (dict "replicas" $replicas)) }}
{{- end }}
{{- $_ := set $s "workers" .Values.workers }}
{{- $_ := set $s "admin" (include "kqp.adminSettings" . | fromYaml) }}
{{- $_ := set $s "listen" (include "kqp.listenSettings" (dict "root" . "name" "main" "listener" $listeners.main) | fromYaml) }}
{{- $more := dict }}
{{- range $name, $l := omit $listeners "main" }}
{{- $_ := set $more $name (include "kqp.listenSettings" (dict "root" $ "name" $name "listener" $l) | fromYaml) }}
{{- end }}
{{- if $more }}{{ $_ := set $s "more_listeners" $more }}{{ end }}
{{- $_ := set $s "limits" (mergeOverwrite ($s.limits | default dict) (dict "drain_timeout" (printf "%ds" (int .Values.drainSeconds)))) }}
{{- if .Values.usageLog.enabled }}
{{- $logs := $s.logs | default dict }}
{{- $to := dict }}
{{- if ne .Values.usageLog.volume "none" }}{{ $_ := set $to "path" (printf "%s/usage" (include "kqp.dataPath" .)) }}{{ end }}
{{- with .Values.usageLog.topic }}{{ $_ := set $to "topic" . }}{{ end }}
{{- if not $to }}{{ fail "usageLog.topic: with volume none the log needs a topic to go to; name one, or take another volume" }}{{ end }}
{{- $_ := set $logs "usage" (merge $to ($logs.usage | default dict)) }}
{{- $_ := set $s "logs" $logs }}
{{- end }}
{{- if eq .Values.kind "StatefulSet" }}
{{- $quotas := $s.quotas | default dict }}
{{- $_ := set $quotas "producer_ids" (merge (dict "state_file" (printf "%s/producer-ids" (include "kqp.dataPath" .))) ($quotas.producer_ids | default dict)) }}
{{- $_ := set $s "quotas" $quotas }}
{{- end }}
{{- toYaml $s }}
{{- end }}

{{/* What of the settings is read at start only: pods are rolled when it changes. The rest, which files/live.txt names, is in force
     without a restart (docs/operations.md, Changing settings). */}}
{{- define "kqp.restartSettings" -}}
{{- $s := include "kqp.settings" . | fromYaml }}
{{- range .Files.Lines "files/live.txt" }}
{{- if . }}{{ include "kqp.without" (dict "settings" $s "path" (splitList "." .)) }}{{ end }}
{{- end }}
{{- toYaml $s }}
{{- end }}

{{/* Take one setting out of `settings`, and sections that are empty then; `*` in its path stands for every name. */}}
{{- define "kqp.without" -}}
{{- $rest := rest .path }}
{{- range (eq (first .path) "*") | ternary (keys .settings) (list (first .path)) }}
{{- $below := get $.settings . }}
{{- if and $rest (kindIs "map" $below) }}{{ include "kqp.without" (dict "settings" $below "path" $rest) }}{{ end }}
{{- if or (not $rest) (empty $below) }}{{ $_ := unset $.settings . }}{{ end }}
{{- end }}
{{- end }}
