{{- define "lakeward.labels" -}}
app.kubernetes.io/name: lakeward
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lakeward.select" -}}
app.kubernetes.io/name: lakeward
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lakeward.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "lakeward.security" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "lakeward.container" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}
