{{/* Names, labels, and what several templates need. Listeners and settings have files of their own. */}}

{{- define "kqp.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that the longest name made of it, with a listener's, has room in 63. */}}
{{- define "kqp.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kqp.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kqp.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What selects proxies, and not the pods of jobs. */}}
{{- define "kqp.proxyLabels" -}}
{{ include "kqp.selectorLabels" . }}
app.kubernetes.io/component: proxy
{{- end }}

{{/* What selects the Redis of redis.enabled. */}}
{{- define "kqp.redisLabels" -}}
{{ include "kqp.selectorLabels" . }}
app.kubernetes.io/component: redis
{{- end }}

{{/* Labels of every object: (dict "root" $ "component" "proxy" "labels" {…}). */}}
{{- define "kqp.labels" -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/part-of" "kafka-quota-proxy"
  "app.kubernetes.io/component" .component }}
{{- merge (include "kqp.selectorLabels" .root | fromYaml) $own (.labels | default dict) .root.Values.commonLabels | toYaml }}
{{- end }}

{{/* metadata of an object: (dict "root" $ "component" "proxy" "name" "…" "labels" {…} "annotations" {…}). */}}
{{- define "kqp.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kqp.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kqp.image" -}}
{{- $registry := (.root.Values.global).imageRegistry | default .image.registry }}
{{- $repository := ternary (printf "%s/%s" $registry .image.repository) .image.repository (not (empty $registry)) }}
{{- $tag := .image.tag | default .root.Chart.AppVersion }}
{{- if .image.digest }}{{ $repository }}@{{ .image.digest }}{{ else }}{{ $repository }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "kqp.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "kqp.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* What all pods have in common, but for the ServiceAccount. */}}
{{- define "kqp.podSpec" -}}
serviceAccountName: {{ include "kqp.serviceAccountName" . }}
{{ include "kqp.podBase" . }}
{{- end }}

{{/* The same of a pod that runs before the chart's ServiceAccount is there. */}}
{{- define "kqp.podBase" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with concat ((.Values.global).imagePullSecrets | default list) .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How many proxies there are, at the most. */}}
{{- define "kqp.replicas" -}}
{{- ternary (int .Values.autoscaling.maxReplicas) (int .Values.replicaCount) .Values.autoscaling.enabled }}
{{- end }}

{{/* Where they add up what they charge. */}}
{{- define "kqp.ledgerKind" -}}
{{- if .Values.ledger.kind }}{{ .Values.ledger.kind }}
{{- else if or .Values.redis.enabled .Values.ledger.servers }}redis
{{- else if gt (include "kqp.replicas" . | int) 1 }}kafka
{{- else }}local
{{- end }}
{{- end }}

{{- define "kqp.usageClaim" -}}
{{- .Values.usageLog.claim.existingClaim | default (printf "%s-usage" (include "kqp.fullname" .)) }}
{{- end }}

{{/* Whether there is a volume `data`, and what is in it. */}}
{{- define "kqp.dataPath" -}}/var/lib/kafka-quota-proxy{{- end }}
{{/* Whether the usage log is in a folder. */}}
{{- define "kqp.hasFolder" -}}
{{- if and .Values.usageLog.enabled (ne .Values.usageLog.volume "none") }}true{{ end }}
{{- end }}
{{- define "kqp.hasData" -}}
{{- if or (include "kqp.hasFolder" .) (eq .Values.kind "StatefulSet") }}true{{ end }}
{{- end }}

{{/* Thousandths of a processor in a quantity such as 250m, 2 or 1.5; 0 for none. */}}
{{- define "kqp.millicores" -}}
{{- $text := toString (. | default "0") }}
{{- if hasSuffix "m" $text }}{{ trimSuffix "m" $text }}{{ else }}{{ mulf (float64 $text) 1000 | int }}{{ end }}
{{- end }}

{{/* Bytes in a size of the settings, such as 64MiB. */}}
{{- define "kqp.bytes" -}}
{{- $factors := dict "" 1 "B" 1 "kB" 1000 "KB" 1000 "MB" 1000000 "GB" 1000000000 "TB" 1000000000000 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 "TiB" 1099511627776 }}
{{- $text := ternary (toString .) (printf "%.0f" .) (kindIs "string" .) | trim }}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $factors (regexFind "[A-Za-z]*$" $text)) | int64 }}
{{- end }}

{{/* Thousandths of processors that the workers of a proxy can use, as the proxy itself counts workers. */}}
{{- define "kqp.usableMillicores" -}}
{{- $request := include "kqp.millicores" (dig "requests" "cpu" "" .Values.resources) | int }}
{{- $limit := include "kqp.millicores" (dig "limits" "cpu" "" .Values.resources) | int }}
{{- $usable := 0 }}
{{- if kindIs "string" .Values.workers }}
{{- $limits := .Values.settings.limits | default dict }}
{{- $fit := div (include "kqp.bytes" ($limits.memory_total | default "1GiB") | int64) (include "kqp.bytes" ($limits.max_frame | default "100MiB") | int64) | int }}
{{- $usable = mul 1000 (max 1 (min (divf $request 1000 | ceil | int) $fit)) | int }}
{{- else }}
{{- $usable = mul 1000 (int .Values.workers) | int }}
{{- end }}
{{- ternary (min $usable $limit) $usable (gt $limit 0) }}
{{- end }}
