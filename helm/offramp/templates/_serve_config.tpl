{{/*
Ray Serve's config. A change of `args` replaces the replicas. A change of `user_config`, which holds the
policies, is applied in place.
*/}}
{{- define "offramp.serveConfig" -}}
{{- $ray := .Values.ray -}}
{{- $http := dict "host" .Values.server.host "port" 8000 -}}
{{- with $ray.requestTimeoutSeconds }}{{ $_ := set $http "request_timeout_s" . }}{{ end -}}
{{- $application := dict
  "name" "offramp"
  "route_prefix" "/"
  "import_path" "serve.app:build"
  "args" (include "offramp.serverConfig" . | fromJson)
  "deployments" (list (include "offramp.deployment" . | fromJson)) -}}
{{- toYaml (dict
  "proxy_location" "EveryNode"
  "http_options" $http
  "logging_config" (dict "encoding" $ray.logEncoding "log_level" $ray.logLevel "enable_access_log" false)
  "applications" (list $application)) -}}
{{- end -}}

{{/* `serve.config.ServerConfig` as JSON. */}}
{{- define "offramp.serverConfig" -}}
{{- $server := .Values.server -}}
{{- $args := dict
  "bundles" (include "offramp.bundleFolders" . | fromJsonArray)
  "device" (ternary "cuda" "cpu" .Values.gpu.enabled)
  "precision" $server.precision -}}
{{- if .Values.bundles.repository }}{{ $_ := set $args "model_repository" .Values.bundles.path }}{{ end -}}
{{- with $server.activeExits }}{{ $_ := set $args "active_exits" . }}{{ end -}}
{{- with $server.numThreads }}{{ $_ := set $args "num_threads" (int64 .) }}{{ end -}}
{{- $args = merge $args (include "offramp.limits" . | fromJson) -}}
{{- with .Values.gpu.memoryGb }}{{ $_ := set $args "gpu_memory_gb" (float64 .) }}{{ end -}}
{{- with $server.answerCacheMb }}{{ $_ := set $args "answer_cache_mb" (float64 .) }}{{ end -}}
{{- with $server.trustedProxies }}{{ $_ := set $args "trusted_proxies" . }}{{ end -}}
{{- with $server.logFile }}{{ $_ := set $args "log_file" . }}{{ end -}}
{{- $_ := set $args "log_format" $server.logFormat -}}
{{- $_ := set $args "log_level" $server.logLevel -}}
{{- $_ := set $args "access_log" $server.accessLog -}}
{{- $_ := set $args "dialects" $server.dialects -}}
{{- with include "offramp.allowedHosts" . | fromJsonArray }}{{ $_ := set $args "allowed_hosts" . }}{{ end -}}
{{- with $server.corsOrigins }}{{ $_ := set $args "cors_origins" . }}{{ end -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $args "keys" "/keys/keys.json" -}}
{{- $_ := set $args "open_metrics" .Values.auth.openMetrics -}}
{{- else -}}
{{- $_ := set $args "no_auth" true -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}

{{/* `serve.config.ServerLimits` as JSON, what the values set of it: maxBatchRows becomes max_batch_rows. */}}
{{- define "offramp.limits" -}}
{{- $limits := dict -}}
{{- range list "maxBatchRows" "maxBatchTokens" "maxQueueRows" "maxQueueTokens" "maxInputs" "maxBodyBytes" "maxBufferedBytes" "tokenizerThreads" -}}
{{- $name := snakecase . -}}
{{- with index $.Values.server . }}{{ $_ := set $limits $name (int64 .) }}{{ end -}}
{{- end -}}
{{- $connections := dict -}}
{{- range $name, $value := .Values.server.connections -}}
{{- $number := int64 $value -}}
{{- if hasSuffix "Seconds" $name }}{{ $number = float64 $value }}{{ end -}}
{{- $_ := set $connections (snakecase $name | replace "_seconds" "_s") $number -}}
{{- end -}}
{{- with $connections }}{{ $_ := set $limits "connections" . }}{{ end -}}
{{- toJson $limits -}}
{{- end -}}

{{- define "offramp.bundleFolders" -}}
{{- $folders := list -}}
{{- range .Values.bundles.names }}{{ $folders = append $folders (printf "%s/%s" $.Values.bundles.path .) }}{{ end -}}
{{- toJson $folders -}}
{{- end -}}

{{/* The Ray Serve deployment, as JSON. One CPU, a number for scheduling only, keeps replicas off the head. */}}
{{- define "offramp.deployment" -}}
{{- $ray := .Values.ray -}}
{{- $actor := dict "num_cpus" 1 -}}
{{- if .Values.gpu.enabled }}{{ $_ := set $actor "num_gpus" (float64 .Values.gpu.perReplica) }}{{ end -}}
{{- $deployment := dict
  "name" "Classifiers"
  "user_config" (dict "policies" (include "offramp.policies" . | fromJson))
  "max_replicas_per_node" (int64 $ray.replicasPerWorker)
  "graceful_shutdown_timeout_s" (int64 $ray.gracefulShutdownSeconds)
  "ray_actor_options" $actor -}}
{{- if $ray.autoscaling.enabled -}}
{{- $_ := set $deployment "autoscaling_config" (dict
  "min_replicas" (int64 $ray.autoscaling.minReplicas)
  "max_replicas" (int64 $ray.autoscaling.maxReplicas)
  "target_ongoing_requests" (float64 $ray.autoscaling.targetOngoingRequests)
  "upscale_delay_s" (float64 $ray.autoscaling.upscaleDelaySeconds)
  "downscale_delay_s" (float64 $ray.autoscaling.downscaleDelaySeconds)) -}}
{{- else -}}
{{- $_ := set $deployment "num_replicas" (int64 .Values.replicas) -}}
{{- end -}}
{{- toJson $deployment -}}
{{- end -}}
