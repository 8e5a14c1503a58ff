{{/* Parts of the RayCluster other than its pods. */}}

{{/* The smallest object store that Ray takes: nothing goes through it. */}}
{{- define "offramp.commonStartParams" -}}
{{- dict "object-store-memory" "78643200" | toJson -}}
{{- end -}}

{{/* Without CPUs the head gets no replica; it steers. */}}
{{- define "offramp.headStartParams" -}}
{{- $fixed := dict "num-cpus" "0" "dashboard-host" "0.0.0.0" -}}
{{- toYaml (merge $fixed .Values.ray.head.startParams (include "offramp.commonStartParams" . | fromJson)) -}}
{{- end -}}

{{- define "offramp.workerStartParams" -}}
{{- $fixed := dict -}}
{{- if .Values.gpu.enabled }}{{ $fixed = dict "num-gpus" (.Values.gpu.perPod | int64 | toString) }}{{ end -}}
{{- toYaml (merge $fixed .Values.ray.workerStartParams (include "offramp.commonStartParams" . | fromJson)) -}}
{{- end -}}

{{/* Workers for the replicas: all of them, or from the least to the most. */}}
{{- define "offramp.workerCounts" -}}
{{- $scaling := .Values.ray.autoscaling -}}
{{- $perWorker := .Values.ray.replicasPerWorker -}}
{{- $least := ternary $scaling.minReplicas .Values.replicas $scaling.enabled -}}
{{- $most := ternary $scaling.maxReplicas .Values.replicas $scaling.enabled -}}
{{- $workers := divf $least $perWorker | ceil | int64 -}}
replicas: {{ $workers }}
minReplicas: {{ $workers }}
maxReplicas: {{ divf $most $perWorker | ceil | int64 }}
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
