{{/* What the CronJob and the Spark operator's kinds of the report have in common. */}}

{{/* Where the report stands: a claim of its own, or a folder beside the usage log. */}}
{{- define "kqp.reportPath" -}}
{{- if .Values.report.existingClaim }}/var/lib/kafka-quota-proxy-report{{ else }}{{ include "kqp.dataPath" . }}/report{{ end }}
{{- end }}

{{- define "kqp.reportLabels" -}}
{{- merge (include "kqp.selectorLabels" . | fromYaml) (dict "app.kubernetes.io/component" "report") .Values.report.podLabels .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{- define "kqp.reportAccount" -}}
{{- $own := .Values.report.serviceAccount }}
{{- $own.name | default (ternary (printf "%s-report" (include "kqp.fullname" .)) (include "kqp.serviceAccountName" .) $own.create) }}
{{- end }}

{{- define "kqp.reportOptions" -}}
{{- with .Values.report -}}
- --logs
- {{ .logs | default (printf "%s/usage" (include "kqp.dataPath" $)) | quote }}
- --out
- {{ include "kqp.reportPath" $ }}
{{- with .bucket }}
- --bucket
- {{ . | quote }}
{{- end }}
{{- with .arguments }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kqp.reportMounts" -}}
{{- if not .Values.report.logs }}
- {name: data, mountPath: {{ include "kqp.dataPath" . }}}
{{- end }}
{{- if .Values.report.existingClaim }}
- {name: report, mountPath: {{ include "kqp.reportPath" . }}}
{{- end }}
# Spark's and matplotlib's scratch space
- {name: tmp, mountPath: /tmp}
{{- with .Values.report.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kqp.reportVolumes" -}}
{{- if not .Values.report.logs }}
- name: data
  persistentVolumeClaim: {claimName: {{ include "kqp.usageClaim" . }}}
{{- end }}
{{- with .Values.report.existingClaim }}
- name: report
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
- name: tmp
  emptyDir: {}
{{- with .Values.report.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The spec of a SparkApplication: sparkoperator.k8s.io/v1beta2. Its pods have no more rights than those of the CronJob, but for the
     driver's ServiceAccount, by which it makes its executors. */}}
{{- define "kqp.sparkSpec" -}}
{{- $spark := .Values.report.spark -}}
type: Python
pythonVersion: "3"
mode: cluster
sparkVersion: {{ $spark.version | quote }}
image: {{ include "kqp.image" (dict "root" . "image" .Values.report.image) }}
imagePullPolicy: {{ .Values.report.image.pullPolicy }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {{ .name }}
  {{- end }}
{{- end }}
mainApplicationFile: local:///opt/kafka-quota-proxy/report.py
arguments:
  {{- include "kqp.reportOptions" . | nindent 2 }}
{{- with $spark.conf }}
sparkConf:
  {{- toYaml . | nindent 2 }}
{{- end }}
restartPolicy: {type: Never}
volumes:
  {{- include "kqp.reportVolumes" . | trim | nindent 2 }}
driver:
  {{- include "kqp.sparkPod" (dict "root" . "of" $spark.driver) | nindent 2 }}
  serviceAccount: {{ $spark.serviceAccount }}
executor:
  {{- include "kqp.sparkPod" (dict "root" . "of" $spark.executor) | nindent 2 }}
  instances: {{ $spark.executor.instances }}
{{- end }}

{{/* What drivers and executors have in common: (dict "root" $ "of" {cores, memory}). */}}
{{- define "kqp.sparkPod" -}}
cores: {{ .of.cores }}
memory: {{ .of.memory }}
labels:
  {{- include "kqp.reportLabels" .root | nindent 2 }}
podSecurityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.report.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.report.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.report.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "kqp.reportMounts" .root | trim | nindent 2 }}
{{- end }}
