{{/* API keys: one Secret holds the file of hashes for the server, and two keys for the chart's own helpers. */}}

{{- define "offramp.keysSecret" -}}
{{- default (printf "%s-keys" (include "offramp.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{/*
Volumes and mounts of a pod that serves. Whole folders: a file mounted by itself would not change when the
Secret does. The server gets hashes only.
*/}}
{{- define "offramp.keysVolume" -}}
{{- if .Values.auth.enabled -}}
- name: keys
  secret:
    secretName: {{ include "offramp.keysSecret" . }}
    items: [{key: keys.json, path: keys.json}]
{{- end -}}
{{- end -}}

{{- define "offramp.keysMount" -}}
{{- if .Values.auth.enabled -}}
- {name: keys, mountPath: /keys, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "offramp.adminKeyVolume" -}}
{{- if .Values.auth.enabled -}}
- name: admin-key
  secret:
    secretName: {{ include "offramp.keysSecret" . }}
    items: [{key: admin-key, path: admin-key}]
{{- end -}}
{{- end -}}

{{- define "offramp.adminKeyMount" -}}
{{- if .Values.auth.enabled -}}
- {name: admin-key, mountPath: /admin-key, readOnly: true}
{{- end -}}
{{- end -}}

{{/* One key as JSON, in the format of `serve.access.keys`. Takes a dict: name, secret, scope, priority. */}}
{{- define "offramp.hashedKey" -}}
{{- dict
  "name" .name
  "sha256" (sha256sum .secret)
  "scopes" (list .scope)
  "priority" .priority
  "created" (dateInZone "2006-01-02" now "UTC") | toJson -}}
{{- end -}}

{{/*
Names by which the server is asked from inside the cluster, added to `server.allowedHosts`; none if that is
empty. `$(POD_IP)` is replaced by the kubelet: Prometheus asks every pod of a Deployment by its address.
*/}}
{{- define "offramp.allowedHosts" -}}
{{- $hosts := .Values.server.allowedHosts -}}
{{- if $hosts -}}
{{- $service := include "offramp.service" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $hosts = concat $hosts (list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.cluster.local" $service $namespace) "localhost" "127.0.0.1") -}}
{{- if eq .Values.mode "deployment" }}{{ $hosts = append $hosts "$(POD_IP)" }}{{ end -}}
{{- end -}}
{{- toJson $hosts -}}
{{- end -}}
