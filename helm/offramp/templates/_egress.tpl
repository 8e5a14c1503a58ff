{{/* Egress rules for addresses that the values name. DNS and the release's own pods are always allowed. */}}
{{- define "offramp.egress" -}}
{{- $ft := .Values.ray.gcsFaultTolerance -}}
{{- $ray := eq .Values.mode "rayservice" -}}
{{- if and $ray (eq $ft.backend "redis") }}
# Redis.
- ports:
    - {port: {{ regexFind "[0-9]+$" $ft.redis.address | default "6379" }}, protocol: TCP}
{{- end }}
{{- if and $ray .Values.ray.autoscaling.enabled }}
# The API server, for the autoscaler.
- ports:
    - {port: 443, protocol: TCP}
    - {port: 6443, protocol: TCP}
{{- end }}
{{- if eq .Values.bundles.source "download" }}
# The servers that bundles are downloaded from.
- ports:
    {{- $ports := list }}
    {{- range .Values.bundles.download.archives }}
    {{- $default := ternary "80" "443" (hasPrefix "http:" .url) }}
    {{- $ports = append $ports (regexFind ":[0-9]+$" (urlParse .url).host | trimPrefix ":" | default $default) }}
    {{- end }}
    {{- range uniq $ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- end -}}
