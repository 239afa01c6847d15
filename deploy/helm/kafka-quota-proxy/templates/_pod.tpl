{{/* The pod of a proxy, for Deployment and StatefulSet. */}}

{{/* Secrets that are mounted, as YAML: name of the volume (and of its folder) → name of the Secret. */}}
{{- define "kqp.secretVolumes" -}}
{{- $out := dict }}
{{- range $name, $l := include "kqp.listeners" . | fromYaml }}
{{- if $l.tls.enabled }}
{{- $_ := set $out (printf "listener-%s" $name) $l.tls.secret }}
{{- if $l.tls.clientCaSecret }}{{ $_ := set $out (printf "listener-%s-clients" $name) $l.tls.clientCaSecret }}{{ end }}
{{- end }}
{{- end }}
{{- with .Values.admin }}
{{- if .auth.existingSecret }}{{ $_ := set $out "admin-auth" .auth.existingSecret }}{{ end }}
{{- if .tls.existingSecret }}{{ $_ := set $out "admin-tls" .tls.existingSecret }}{{ end }}
{{- end }}
{{- with .Values.upstream }}
{{- if .tls.caSecret }}{{ $_ := set $out "upstream-ca" .tls.caSecret }}{{ end }}
{{- if .tls.certSecret }}{{ $_ := set $out "upstream-cert" .tls.certSecret }}{{ end }}
{{- if .sasl.existingSecret }}{{ $_ := set $out "upstream-sasl" .sasl.existingSecret }}{{ end }}
{{- end }}
{{- if eq (include "kqp.ledgerKind" . | trim) "redis" }}
{{- with .Values.ledger }}
{{- if .existingSecret }}{{ $_ := set $out "ledger" .existingSecret }}{{ end }}
{{- if .sentinelSecret }}{{ $_ := set $out "ledger-sentinel" .sentinelSecret }}{{ end }}
{{- if .tls.caSecret }}{{ $_ := set $out "ledger-ca" .tls.caSecret }}{{ end }}
{{- if .tls.certSecret }}{{ $_ := set $out "ledger-cert" .tls.certSecret }}{{ end }}
{{- end }}
{{- end }}
{{- if $out }}{{ toYaml $out }}{{ end }}
{{- end }}

{{- define "kqp.podTemplate" -}}
{{- $listeners := include "kqp.listeners" . | fromYaml }}
{{- $secrets := include "kqp.secretVolumes" . | fromYaml }}
{{- $ship := and .Values.usageLog.enabled (eq .Values.usageLog.volume "stdout") }}
{{- $scheme := ternary ", scheme: HTTPS" "" (not (empty .Values.admin.tls.existingSecret)) }}
{{- $clean := and (include "kqp.hasFolder" .) (not $ship) (gt (int .Values.usageLog.keepHours) 0) }}
metadata:
  labels:
    {{- merge (include "kqp.proxyLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: proxy
    # What is read at start only. Quotas and limits are not in it: they are in force a moment after the ConfigMap changed.
    checksum/restart: {{ include "kqp.restartSettings" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "kqp.podSpec" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.drainSeconds 10 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- toYaml (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" (include "kqp.proxyLabels" $ | fromYaml)))) | nindent 6 }}
      {{- if and (eq $.Values.kind "Deployment") (not .matchLabelKeys) }}
      matchLabelKeys: [pod-template-hash]
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if or $clean $ship .Values.initContainers }}
  initContainers:
    {{- with .Values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- if or $clean $ship }}
    # Runs beside the proxy, and ends after it: the proxy deletes no file.
    - name: usage-log
      image: {{ include "kqp.image" (dict "root" . "image" .Values.image) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      restartPolicy: Always
      {{- if $ship }}
      command: [python3, -c]
      args:
        - |
          {{- .Files.Get "files/ship.py" | nindent 10 }}
        - {{ include "kqp.dataPath" . }}/usage
      {{- else }}
      command:
        - /bin/sh
        - -c
        - |
          trap 'exit 0' TERM INT
          while :; do
            find "$FOLDER" -type f -name 'usage-*.jsonl' -mmin "+$MINUTES" -delete 2>/dev/null
            sleep 600 & wait $!
          done
      env:
        - {name: FOLDER, value: {{ include "kqp.dataPath" . }}/usage}
        - {name: MINUTES, value: {{ mul .Values.usageLog.keepHours 60 | quote }}}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      resources:
        {{- toYaml .Values.usageLog.containerResources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: {{ include "kqp.dataPath" . }}}
  {{- end }}
  containers:
    - name: proxy
      image: {{ include "kqp.image" (dict "root" . "image" .Values.image) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: {{ toJson (concat (list "serve" "--config" "/etc/kafka-quota-proxy/settings/settings.yaml") .Values.extraArgs) }}
      env:
        # For `workers: auto`: rounded up.
        - name: KAFKA_QUOTA_PROXY_PROCESSORS
          valueFrom:
            resourceFieldRef: {containerName: proxy, resource: requests.cpu, divisor: "1"}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: admin, containerPort: {{ .Values.admin.port }}}
        {{- range $name, $l := $listeners }}
        - {name: {{ $name }}, containerPort: {{ $l.port }}}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: admin{{ $scheme }}}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: admin{{ $scheme }}}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: admin{{ $scheme }}}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      {{- if gt (int .Values.preStopSeconds) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ .Values.preStopSeconds }}}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        # A folder and not a file: kubelet replaces it as a whole, and the proxy sees the new settings.
        - {name: settings, mountPath: /etc/kafka-quota-proxy/settings, readOnly: true}
        {{- range $name, $_ := $secrets }}
        - {name: {{ $name }}, mountPath: /etc/kafka-quota-proxy/{{ $name }}, readOnly: true}
        {{- end }}
        {{- if include "kqp.hasData" . }}
        - {name: data, mountPath: {{ include "kqp.dataPath" . }}}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: settings
      configMap: {name: {{ include "kqp.fullname" . }}}
    {{- range $name, $secret := $secrets }}
    - name: {{ $name }}
      secret: {secretName: {{ $secret }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.usageLog.enabled }}
    {{- if has .Values.usageLog.volume (list "emptyDir" "stdout") }}
    - name: data
      emptyDir: {sizeLimit: {{ .Values.usageLog.sizeLimit }}}
    {{- else if eq .Values.usageLog.volume "claim" }}
    - name: data
      persistentVolumeClaim: {claimName: {{ include "kqp.usageClaim" . }}}
    {{- end }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
