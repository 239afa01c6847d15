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
{{- $tag := .image.tag | default .root.Chart.AppVersion }}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "kqp.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "kqp.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "kqp.podSpec" -}}
serviceAccountName: {{ include "kqp.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
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
