{{/*
Refuses values that are missing or contradict each other. Each problem is one sentence: what is wrong,
and what to set. values.schema.json checks single values.
*/}}

{{- define "offramp.validate" -}}
{{- $problems := list -}}
{{- range list "names" "mode" "bundles" "policies" "server" "gpu" "ray" "scaling" "edge" "access" -}}
{{- $problems = concat $problems (include (printf "offramp.problems.%s" .) $ | fromJsonArray) -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\n%s\n" (join "\n" $problems)) -}}
{{- end -}}
{{- end -}}

{{/* The smallest number of servers that the values allow. */}}
{{- define "offramp.leastServers" -}}
{{- if and (eq .Values.mode "rayservice") .Values.ray.autoscaling.enabled -}}
{{- int64 .Values.ray.autoscaling.minReplicas -}}
{{- else if and (eq .Values.mode "deployment") (ne .Values.autoscaling.type "none") -}}
{{- int64 .Values.autoscaling.minReplicas -}}
{{- else -}}
{{- int64 .Values.replicas -}}
{{- end -}}
{{- end -}}

{{- define "offramp.problems.names" -}}
{{- $problems := list -}}
{{- $name := include "offramp.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- $problems = append $problems (printf "the name %q must begin with a letter and hold only lower-case letters, digits and dashes; choose another release name, or set fullnameOverride" $name) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* Values that only the other mode uses. */}}
{{- define "offramp.problems.mode" -}}
{{- $problems := list -}}
{{- $v := .Values -}}
{{- if eq $v.mode "rayservice" -}}
{{- if ne $v.autoscaling.type "none" -}}
{{- $problems = append $problems (printf "autoscaling.type %s is for mode deployment: in mode rayservice Ray Serve scales the replicas and Ray its workers; set ray.autoscaling.enabled instead" $v.autoscaling.type) -}}
{{- end -}}
{{- if ne $v.service.type "ClusterIP" -}}
{{- $problems = append $problems (printf "service.type %s is for mode deployment: in mode rayservice KubeRay makes the Service; use ingress or httpRoute, or a Service of your own in extraObjects" $v.service.type) -}}
{{- end -}}
{{- if $v.server.grpcPort -}}
{{- $problems = append $problems "server.grpcPort is for mode deployment: in mode rayservice Ray Serve's proxies do not pass our gRPC on; leave it out" -}}
{{- end -}}
{{- else -}}
{{- if $v.bundles.repository -}}
{{- $problems = append $problems "bundles.repository is for mode rayservice: in mode deployment a request reaches one pod, and the others would go on with their bundles; change bundles.names" -}}
{{- end -}}
{{- if $v.ray.autoscaling.enabled -}}
{{- $problems = append $problems "ray.autoscaling is for mode rayservice: in mode deployment set autoscaling.type to hpa or keda" -}}
{{- end -}}
{{- if and $v.metrics.enabled (eq $v.metrics.via "scrapeConfig") -}}
{{- $problems = append $problems "metrics.via scrapeConfig reads one page for all replicas, which only mode rayservice has: in mode deployment leave metrics.via at podMonitor, and a ServiceMonitor reads every pod" -}}
{{- end -}}
{{- if has (int64 (default 0 $v.server.grpcPort)) (list 8000 (int64 $v.service.port)) -}}
{{- $problems = append $problems (printf "server.grpcPort %d is the port for HTTP: choose another" (int64 $v.server.grpcPort)) -}}
{{- end -}}
{{- if $v.server.numThreads -}}
{{- $problems = append $problems "server.numThreads is for mode rayservice: the command that mode deployment runs has no option for it; leave it out" -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.bundles" -}}
{{- $problems := list -}}
{{- $b := .Values.bundles -}}
{{- if not $b.names -}}
{{- $problems = append $problems "bundles.names is empty: set it to the folders of the bundles to serve, such as [sst2-minilm]" -}}
{{- end -}}
{{- if not $b.source -}}
{{- $problems = append $problems "bundles.source is not set, and the project's image holds no bundle: set download with bundles.download.archives, pvc with bundles.pvc.claimName, or image with an image of your own that holds the bundles" -}}
{{- end -}}
{{- if ne (len $b.names) (len (uniq $b.names)) -}}
{{- $problems = append $problems (printf "bundles.names holds a name twice: %s" (join ", " $b.names)) -}}
{{- end -}}
{{- if and (eq $b.source "pvc") (not $b.pvc.claimName) -}}
{{- $problems = append $problems "bundles.source pvc needs bundles.pvc.claimName, the claim that holds the bundles" -}}
{{- end -}}
{{- if and (ne $b.source "pvc") $b.pvc.claimName -}}
{{- $problems = append $problems (printf "bundles.pvc.claimName is set, but bundles.source is %s: set it to pvc, or leave out the claim" (default "not set" $b.source)) -}}
{{- end -}}
{{- if eq $b.source "download" -}}
{{- $archives := list -}}
{{- range $b.download.archives }}{{ $archives = append $archives .name }}{{ end -}}
{{- range $b.names -}}
{{- if not (has . $archives) -}}
{{- $problems = append $problems (printf "bundles.names has %s, which bundles.download.archives does not have; it has %s" . (join ", " $archives | default "none")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.policies" -}}
{{- $problems := list -}}
{{- range $model, $policy := .Values.policies -}}
{{- if not (has $model $.Values.bundles.names) -}}
{{- $problems = append $problems (printf "policies.%s: no such model is served; bundles.names has %s" $model (join ", " $.Values.bundles.names)) -}}
{{- end -}}
{{- if kindIs "invalid" (index (default dict $policy) "default") -}}
{{- $problems = append $problems (printf "policies.%s.default is missing: this policy takes the place of the bundle's whole one; for texts that run in full, say {rule: never}" $model) -}}
{{- end -}}
{{- $profiles := default dict (default dict $policy).profiles -}}
{{- if and (kindIs "string" (index (default dict $policy) "default")) (not (hasKey $profiles (toString $policy.default))) -}}
{{- $problems = append $problems (printf "policies.%s.default: no profile %q; the policy has %s" $model (toString $policy.default) (keys $profiles | sortAlpha | join ", " | default "none")) -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.server" -}}
{{- $problems := list -}}
{{- $exits := .Values.server.activeExits -}}
{{- range $model, $layers := $exits -}}
{{- if not (has $model $.Values.bundles.names) -}}
{{- $problems = append $problems (printf "server.activeExits.%s: no such model is served; bundles.names has %s" $model (join ", " $.Values.bundles.names)) -}}
{{- end -}}
{{- end -}}
{{- if and $exits (eq .Values.mode "deployment") -}}
{{- $said := list -}}
{{- range .Values.bundles.names }}{{ $said = append $said (index $exits . | toJson) }}{{ end -}}
{{- if gt (len (uniq $said)) 1 -}}
{{- $problems = append $problems "server.activeExits must be the same for every model in mode deployment: its command has one option for all models; or use mode rayservice" -}}
{{- end -}}
{{- end -}}
{{- $needed := add .Values.shutdown.preStopSeconds (ternary .Values.ray.gracefulShutdownSeconds 60 (eq .Values.mode "rayservice")) | int64 -}}
{{- if lt (int64 .Values.shutdown.terminationGracePeriodSeconds) $needed -}}
{{- $problems = append $problems (printf "shutdown.terminationGracePeriodSeconds %d is too short: preStopSeconds and the time to answer the requests in flight take %d" (int64 .Values.shutdown.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.gpu" -}}
{{- $problems := list -}}
{{- $gpu := .Values.gpu -}}
{{- if $gpu.enabled -}}
{{- if not .Values.image.cuda -}}
{{- $problems = append $problems "gpu.enabled needs an image that holds CUDA: set image.cuda to true, and image.tag, if you set it, to such an image" -}}
{{- end -}}
{{- if eq .Values.server.precision "int8" -}}
{{- $problems = append $problems "server.precision int8 is made for CPUs: with gpu.enabled use auto, fp16 or fp32" -}}
{{- end -}}
{{- if eq .Values.mode "deployment" -}}
{{- if gt (int64 $gpu.perPod) 1 -}}
{{- $problems = append $problems (printf "gpu.perPod %d: in mode deployment a pod is one server, which uses one GPU; set it to 1 and raise replicas" (int64 $gpu.perPod)) -}}
{{- end -}}
{{- if ne (float64 $gpu.perReplica) 1.0 -}}
{{- $problems = append $problems "gpu.perReplica is for mode rayservice: in mode deployment a pod is one server with one GPU; leave it out" -}}
{{- end -}}
{{- else if gt (mulf $gpu.perReplica .Values.ray.replicasPerWorker) (float64 $gpu.perPod) -}}
{{- $problems = append $problems (printf "%v replicas per worker with %v GPUs each do not fit into gpu.perPod %v: lower gpu.perReplica or ray.replicasPerWorker" .Values.ray.replicasPerWorker $gpu.perReplica $gpu.perPod) -}}
{{- end -}}
{{- else -}}
{{- if $gpu.memoryGb -}}
{{- $problems = append $problems "gpu.memoryGb is set, but gpu.enabled is not" -}}
{{- end -}}
{{- if eq .Values.server.precision "fp16" -}}
{{- $problems = append $problems "server.precision fp16 is made for GPUs: set gpu.enabled, or use auto, int8 or fp32" -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.ray" -}}
{{- $problems := list -}}
{{- if eq .Values.mode "rayservice" -}}
{{- $ray := .Values.ray -}}
{{- $ft := $ray.gcsFaultTolerance -}}
{{- if and (eq $ft.backend "redis") (not $ft.redis.address) -}}
{{- $problems = append $problems "ray.gcsFaultTolerance.backend redis needs ray.gcsFaultTolerance.redis.address, such as redis:6379" -}}
{{- end -}}
{{- if and (ne $ft.backend "redis") $ft.redis.address -}}
{{- $problems = append $problems (printf "ray.gcsFaultTolerance.redis.address is set, but the backend is %s: set ray.gcsFaultTolerance.backend to redis, or leave out the address" $ft.backend) -}}
{{- end -}}
{{- if and $ft.rocksdb.claimName $ft.rocksdb.storageClassName -}}
{{- $problems = append $problems "ray.gcsFaultTolerance.rocksdb has claimName and storageClassName: claimName names an existing claim, storageClassName makes a new one; set one of them" -}}
{{- end -}}
{{- if and $ray.auth.existingSecret (not $ray.auth.enabled) -}}
{{- $problems = append $problems "ray.auth.existingSecret is set, but ray.auth.enabled is not" -}}
{{- end -}}
{{- if and (gt (int64 $ray.replicasPerWorker) 1) (not .Values.server.numThreads) (not .Values.gpu.enabled) -}}
{{- $problems = append $problems (printf "ray.replicasPerWorker %d needs server.numThreads: without it each replica takes all cores of its worker" (int64 $ray.replicasPerWorker)) -}}
{{- end -}}
{{- range $group := list "head.startParams" "workerStartParams" -}}
{{- $params := ternary $ray.head.startParams $ray.workerStartParams (eq $group "head.startParams") -}}
{{- range list "num-cpus" "num-gpus" "dashboard-host" "metrics-export-port" -}}
{{- if hasKey $params . -}}
{{- $problems = append $problems (printf "ray.%s.%s is set by the chart: leave it out" $group .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.scaling" -}}
{{- $problems := list -}}
{{- $v := .Values -}}
{{- $budget := $v.podDisruptionBudget -}}
{{- $least := include "offramp.leastServers" . | int64 -}}
{{- if and $budget.enabled $budget.minAvailable -}}
{{- if $budget.maxUnavailable -}}
{{- $problems = append $problems "podDisruptionBudget has minAvailable and maxUnavailable: set one of them to null" -}}
{{- end -}}
{{- if and (not (kindIs "string" $budget.minAvailable)) (ge (int64 $budget.minAvailable) $least) -}}
{{- $problems = append $problems (printf "podDisruptionBudget.minAvailable %d of %d replicas would block every drain of a node: use fewer, or more replicas" (int64 $budget.minAvailable) $least) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $v.autoscaling.type "none") (gt (int64 $v.autoscaling.minReplicas) (int64 $v.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems (printf "autoscaling.minReplicas %d is more than autoscaling.maxReplicas %d" (int64 $v.autoscaling.minReplicas) (int64 $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and $v.ray.autoscaling.enabled (gt (int64 $v.ray.autoscaling.minReplicas) (int64 $v.ray.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems (printf "ray.autoscaling.minReplicas %d is more than ray.autoscaling.maxReplicas %d" (int64 $v.ray.autoscaling.minReplicas) (int64 $v.ray.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- $workers := divf $v.ray.autoscaling.maxReplicas $v.ray.replicasPerWorker | ceil | int64 -}}
{{- if and $v.ray.autoscaling.enabled (gt $workers (int64 $v.ray.autoscaling.maxWorkers)) -}}
{{- $problems = append $problems (printf "ray.autoscaling.maxReplicas %d needs %d workers, and ray.autoscaling.maxWorkers is %d" (int64 $v.ray.autoscaling.maxReplicas) $workers (int64 $v.ray.autoscaling.maxWorkers)) -}}
{{- end -}}
{{- if and (eq $v.autoscaling.type "keda") (not $v.autoscaling.keda.serverAddress) -}}
{{- $problems = append $problems "autoscaling.type keda needs autoscaling.keda.serverAddress, where Prometheus answers, such as http://prometheus.monitoring:9090" -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.edge" -}}
{{- $problems := list -}}
{{- $v := .Values -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- $problems = append $problems "ingress.enabled needs ingress.hosts: without a host the Ingress would answer for every host" -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) -}}
{{- $problems = append $problems "httpRoute.enabled needs httpRoute.parentRefs, the gateways that the route belongs to" -}}
{{- end -}}
{{- if and $v.ingress.enabled $v.httpRoute.enabled (not $v.httpRoute.besideIngress) -}}
{{- $problems = append $problems "ingress and httpRoute are both enabled, which publishes the server twice: choose one, or set httpRoute.besideIngress while you move from one to the other" -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "offramp.problems.access" -}}
{{- $problems := list -}}
{{- $v := .Values -}}
{{- if and $v.auth.existingSecret (not $v.auth.enabled) -}}
{{- $problems = append $problems "auth.existingSecret is set, but auth.enabled is not" -}}
{{- end -}}
{{- if and (has "*" $v.server.corsOrigins) (not $v.auth.enabled) -}}
{{- $problems = append $problems "server.corsOrigins has *, which needs auth.enabled: without keys every web page that someone opens could use the server" -}}
{{- end -}}
{{- if and $v.metrics.enabled $v.auth.enabled (not $v.auth.openMetrics) -}}
{{- $problems = append $problems "metrics.enabled makes monitors that send no key: set auth.openMetrics, or metrics.enabled to false and make monitors of your own, which send a key with scope read" -}}
{{- end -}}
{{- if and $v.server.allowedHosts $v.metrics.enabled (eq $v.mode "rayservice") (eq $v.metrics.via "podMonitor") -}}
{{- $problems = append $problems "server.allowedHosts refuses a PodMonitor, which asks the head by its address: set metrics.via to scrapeConfig, which asks the Service by its name" -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
