{{/*
Pods of the RayCluster. KubeRay adds the command (`ray start ...`), the probes and the token. The chart
sets no readiness probe, because it would replace KubeRay's probe, which asks the proxy.
*/}}

{{- define "offramp.headPod" -}}
{{- $head := .Values.ray.head -}}
metadata:
  {{- include "offramp.podMetadata" (dict "root" . "component" "head") | nindent 2 }}
spec:
  {{- include "offramp.podSettings" (dict "root" . "nodeSelector" $head.nodeSelector "tolerations" $head.tolerations "affinity" $head.affinity) | nindent 2 }}
  # The autoscaler's container asks Kubernetes for workers.
  automountServiceAccountToken: {{ .Values.ray.autoscaling.enabled }}
  containers:
    - name: ray-head
      {{- include "offramp.containerImage" . | nindent 6 }}
      ports:
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
        {{- if .Values.ray.haproxy }}
        - {name: haproxy-metrics, containerPort: 9101}
        {{- end }}
      env:
        {{- include "offramp.rayEnv" . | nindent 8 }}
      {{- include "offramp.envFrom" . | nindent 6 }}
      resources:
        {{- toYaml $head.resources | nindent 8 }}
      lifecycle:
        preStop:
          exec: {command: [ray, stop]}
      volumeMounts:
        {{- include "offramp.rayMounts" . | nindent 8 }}
  volumes:
    {{- include "offramp.rayVolumes" . | nindent 4 }}
{{- end -}}

{{- define "offramp.workerPod" -}}
metadata:
  {{- include "offramp.podMetadata" (dict "root" . "component" "server") | nindent 2 }}
spec:
  {{- include "offramp.serverPodSettings" . | nindent 2 }}
  automountServiceAccountToken: false
  {{- with include "offramp.initContainers" . | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: ray-worker
      {{- include "offramp.containerImage" . | nindent 6 }}
      ports:
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
        {{- if .Values.ray.haproxy }}
        - {name: haproxy-metrics, containerPort: 9101}
        {{- end }}
      env:
        {{- include "offramp.rayEnv" . | nindent 8 }}
      {{- include "offramp.envFrom" . | nindent 6 }}
      resources:
        {{- include "offramp.serverResources" . | nindent 8 }}
      lifecycle:
        preStop:
          exec:
            command:
              - bash
              - -c
              - {{ include "offramp.leaveCluster" . | quote }}
      volumeMounts:
        {{- include "offramp.rayMounts" . | nindent 8 }}
        {{- include "offramp.bundleMounts" . | nindent 8 }}
        {{- include "offramp.keysMount" . | nindent 8 }}
  volumes:
    {{- include "offramp.rayVolumes" . | nindent 4 }}
    {{- include "offramp.bundleVolumes" . | nindent 4 }}
    {{- include "offramp.keysVolume" . | nindent 4 }}
{{- end -}}

{{- define "offramp.rayMounts" -}}
{{ include "offramp.volumeMounts" . }}
- {name: shm, mountPath: /dev/shm}
{{- end -}}

{{- define "offramp.rayVolumes" -}}
{{ include "offramp.volumes" . }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.shmSizeLimit }}}
{{- end -}}

{{/* Ray reads these when it is imported, in every process of a pod. */}}
{{- define "offramp.rayEnv" -}}
{{ include "offramp.writableHome" . }}
{{- if .Values.ray.haproxy }}
# Set both or none: the second without the first makes every worker unready.
- {name: RAY_SERVE_ENABLE_HA_PROXY, value: "1"}
- {name: RAY_SERVE_THROUGHPUT_OPTIMIZED, value: "1"}
- name: RAY_SERVE_HAPROXY_NBTHREAD
  valueFrom:
    resourceFieldRef: {resource: limits.cpu}
{{- end }}
- {name: RAY_SERVE_LOG_TO_STDERR, value: "1"}
- {name: RAY_SERVE_DEFAULT_HTTP_HOST, value: {{ .Values.server.host | quote }}}
- {name: RAY_worker_niceness, value: "0"}
- {name: RAY_metrics_report_interval_ms, value: "5000"}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
# Keeps Ray from hiding GPUs from actors that ask for none, and from logging a warning about it.
- {name: RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO, value: "0"}
- {name: RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S, value: "2"}
# A replica that has hung is killed without a drain.
- {name: RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS, value: "1"}
- {name: RAY_kill_worker_timeout_milliseconds, value: "2000"}
{{- include "offramp.extraEnv" . }}
{{- end -}}

{{/*
Runs before a worker ends. Ray Serve starts a replica on another node, and the old replica answers its
requests. New requests still arrive meanwhile, through the proxies of all nodes.
*/}}
{{- define "offramp.leaveCluster" -}}
{{- $seconds := add .Values.shutdown.preStopSeconds .Values.ray.gracefulShutdownSeconds | int64 -}}
ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message 'the pod ends' --deadline-remaining-seconds {{ $seconds }}; sleep {{ $seconds }}; ray stop
{{- end -}}
