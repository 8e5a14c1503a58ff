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

{{/*
Workers for the replicas. KubeRay does not take these numbers over into a cluster that runs. With the
autoscaler they are wide, therefore, and Ray Serve's own bounds, which change in place, decide.
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
