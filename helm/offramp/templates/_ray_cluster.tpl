{{/* Parts of the RayCluster except its pods. */}}

{{/* The smallest object store that Ray allows: the server does not use it. */}}
{{- define "offramp.commonStartParams" -}}
{{- dict "object-store-memory" "78643200" | toJson -}}
{{- end -}}

{{/* A head without CPUs gets no replica. */}}
{{- define "offramp.headStartParams" -}}
{{- $fixed := dict "num-cpus" "0" "dashboard-host" "0.0.0.0" -}}
{{- toYaml (merge $fixed .Values.ray.head.startParams (include "offramp.commonStartParams" . | fromJson)) -}}
{{- end -}}

{{- define "offramp.workerStartParams" -}}
{{- $fixed := dict -}}
{{- if .Values.gpu.enabled }}{{ $fixed = dict "num-gpus" (.Values.gpu.perPod | int64 | toString) }}{{ end -}}
{{- toYaml (merge $fixed .Values.ray.workerStartParams (include "offramp.commonStartParams" . | fromJson)) -}}
{{- end -}}

{{/*
Number of workers. KubeRay does not apply new numbers to a running cluster. With the autoscaler the bounds
are therefore wide, and Ray Serve's own bounds decide, which change in place.
*/}}
{{- define "offramp.workerCounts" -}}
{{- $scaling := .Values.ray.autoscaling -}}
{{- $workers := divf (include "offramp.leastServers" .) .Values.ray.replicasPerWorker | ceil | int64 -}}
replicas: {{ $workers }}
minReplicas: {{ ternary 1 $workers $scaling.enabled }}
maxReplicas: {{ ternary (int64 $scaling.maxWorkers) $workers $scaling.enabled }}
{{- end -}}

{{- define "offramp.gcsFaultTolerance" -}}
{{- $ft := .Values.ray.gcsFaultTolerance -}}
{{- if eq $ft.backend "redis" -}}
gcsFaultToleranceOptions:
  redisAddress: {{ $ft.redis.address }}
  {{- with $ft.redis.username }}
  redisUsername: {value: {{ . }}}
  {{- end }}
  {{- if $ft.redis.passwordSecret.name }}
  redisPassword:
    valueFrom:
      secretKeyRef: {name: {{ $ft.redis.passwordSecret.name }}, key: {{ $ft.redis.passwordSecret.key }}}
  {{- end }}
{{- else if eq $ft.backend "rocksdb" -}}
gcsFaultToleranceOptions:
  backend: rocksdb
  storage:
    {{- if $ft.rocksdb.claimName }}
    claimName: {{ $ft.rocksdb.claimName }}
    {{- else }}
    size: {{ $ft.rocksdb.size }}
    {{- with $ft.rocksdb.storageClassName }}
    storageClassName: {{ . }}
    {{- end }}
    {{- end }}
{{- end -}}
{{- end -}}
