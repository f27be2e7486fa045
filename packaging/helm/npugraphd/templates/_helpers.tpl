{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "npugraphd.name" -}}
{{- contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "npugraphd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "npugraphd.labels" -}}
{{ include "npugraphd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "npugraphd.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What the chart sets, then `config`. A list is an option given several times. */}}
{{- define "npugraphd.conf" -}}
{{- $listen := list "unix:/run/npugraphd/npugraphd.sock" }}
{{- $options := dict "socket-mode" .Values.socket.mode "stats-listen" (printf "0.0.0.0:%d" (int .Values.stats.port))
  "store-dir" "/var/cache/npugraphd/store" "store-budget" (printf "%dM" (int .Values.store.size))
  "drain-grace" (printf "%ds" (int .Values.drainGrace)) "stop-grace" (printf "%ds" (int .Values.stopGrace)) }}
{{- if .Values.npu.count }}
  {{- $devices := list }}
  {{- range $i := until (int .Values.npu.count) }}{{ $devices = append $devices (printf "ascend:%d" $i) }}{{ end }}
  {{- $_ := set $options "device" $devices }}
{{- else }}
  {{- $_ := set $options "device" "host" }}
  {{- $_ := set $options "threads" .Values.cpus }}
{{- end }}
{{- if or .Values.models.hostPath .Values.models.claimName }}
  {{- $_ := set $options "models-dir" "/models" }}
{{- end }}
{{- with .Values.models.load }}
  {{- $_ := set $options "load" . }}
{{- end }}
{{- if .Values.tls.secretName }}
  {{- $listen = append $listen (printf "tcp:0.0.0.0:%d" (int .Values.tls.port)) }}
  {{- $_ := set $options "tls-cert" "/etc/npugraphd/tls/tls.crt" }}
  {{- $_ := set $options "tls-key" "/etc/npugraphd/tls/tls.key" }}
  {{- $_ := set $options "tls-client-ca" "/etc/npugraphd/tls/ca.crt" }}
{{- end }}
{{- if .Values.tokens.secretName }}
  {{- $_ := set $options "token-file" "/etc/npugraphd/tokens/tokens" }}
{{- end }}
{{- $_ := set $options "listen" $listen }}
{{- range $name, $value := .Values.config }}{{ $_ := set $options $name $value }}{{ end }}
{{- range $name := keys $options | sortAlpha }}
  {{- $value := get $options $name }}
  {{- range $one := kindIs "slice" $value | ternary $value (list $value) }}
{{ $name }} = {{ kindIs "bool" $one | ternary (ternary "yes" "no" (eq (toString $one) "true")) (kindIs "float64" $one | ternary (int64 $one) $one) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A volume that is a directory of the node if there is a path, and the pod's own otherwise. */}}
{{- define "npugraphd.volume" -}}
{{- if .path -}}
hostPath:
  path: {{ .path }}
  type: {{ .type | default "DirectoryOrCreate" }}
{{- else -}}
emptyDir:
  sizeLimit: {{ .size }}
{{- end }}
{{- end }}
