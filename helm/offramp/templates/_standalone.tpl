{{/* Containers of mode deployment. */}}

{{/* The command, as a YAML list. */}}
{{- define "offramp.arguments" -}}
{{- $server := .Values.server -}}
{{- $arguments := concat (list "offramp" "serve") (include "offramp.bundleFolders" . | fromJsonArray) -}}
{{- $arguments = concat $arguments (list
  "--standalone" "--host" $server.host "--port" "8000"
  "--device" (ternary "cuda" "cpu" .Values.gpu.enabled)
  "--precision" $server.precision) -}}
{{- if $server.activeExits -}}
{{- $exits := index $server.activeExits (first .Values.bundles.names) -}}
{{- $layers := list -}}
{{- range $exits }}{{ $layers = append $layers (int64 . | toString) }}{{ end -}}
{{- $arguments = concat $arguments (list "--active-exits" (join "," $layers)) -}}
{{- end -}}
{{- with .Values.gpu.memoryGb }}{{ $arguments = concat $arguments (list "--gpu-memory-gb" (toString .)) }}{{ end -}}
{{- with $server.answerCacheMb }}{{ $arguments = concat $arguments (list "--answer-cache" (toString .)) }}{{ end -}}
{{- with $server.grpcPort }}{{ $arguments = concat $arguments (list "--grpc-port" (int64 . | toString)) }}{{ end -}}
{{- $access := ternary (list "--keys" "/keys/keys.json") (list "--no-auth") .Values.auth.enabled -}}
{{- if and .Values.auth.enabled .Values.auth.openMetrics }}{{ $access = append $access "--open-metrics" }}{{ end -}}
{{- range include "offramp.allowedHosts" . | fromJsonArray }}{{ $access = concat $access (list "--allowed-host" .) }}{{ end -}}
{{- range $server.corsOrigins }}{{ $access = concat $access (list "--cors-origin" .) }}{{ end -}}
{{- with $server.trustedProxies }}{{ $access = concat $access (list "--trusted-proxies" (join "," .)) }}{{ end -}}
{{- with include "offramp.limits" . | fromJson }}{{ $arguments = concat $arguments (list "--limits" (toJson .)) }}{{ end -}}
{{- $logs := list "--log-format" $server.logFormat "--log-level" $server.logLevel -}}
{{- with $server.logFile }}{{ $logs = concat $logs (list "--log-file" .) }}{{ end -}}
{{- if $server.accessLog }}{{ $logs = append $logs "--access-log" }}{{ end -}}
{{- $dialects := list "--dialects" (join "," $server.dialects) -}}
{{- toYaml (concat $arguments $access $logs $dialects) -}}
{{- end -}}

{{/* The command line has no option for policies, so this container sends them to the HTTP API of its pod. */}}
{{- define "offramp.policySync" -}}
- name: policy-sync
  {{- include "offramp.containerImage" . | nindent 2 }}
  command: [python, /scripts/sync_policies.py]
  args: ["http://127.0.0.1:8000", /policies, /tmp/policies-applied, {{ .Values.deployment.policySync.periodSeconds | int64 | toString | quote }}]
  env:
    {{- include "offramp.writableHome" . | nindent 4 }}
    {{- if .Values.auth.enabled }}
    - {name: OFFRAMP_KEY_FILE, value: /admin-key/admin-key}
    {{- end }}
  resources:
    {{- toYaml .Values.deployment.policySync.resources | nindent 4 }}
  # No pod gets requests before its policies apply. One whose policy is refused never gets ready.
  readinessProbe:
    exec: {command: [test, -e, /tmp/policies-applied]}
    periodSeconds: 5
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: policies, mountPath: /policies, readOnly: true}
    - {name: scripts, mountPath: /scripts, readOnly: true}
    {{- include "offramp.adminKeyMount" . | nindent 4 }}
{{- end -}}
