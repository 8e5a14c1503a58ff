{{/* Parts of the pods of both modes. */}}

{{/* Scheduling and identity. Takes a dict: root, nodeSelector, tolerations, affinity. */}}
{{- define "offramp.podSettings" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "offramp.serviceAccount" .root }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ int64 $values.shutdown.terminationGracePeriodSeconds }}
{{- end -}}

{{/* Placement of serving pods: on GPU nodes if GPUs are enabled, spread over hosts and zones. */}}
{{- define "offramp.serverPodSettings" -}}
{{- $gpu := .Values.gpu -}}
{{- $nodes := ternary (merge dict $gpu.nodeSelector .Values.nodeSelector) .Values.nodeSelector $gpu.enabled -}}
{{- $tolerations := ternary (concat $gpu.tolerations .Values.tolerations) .Values.tolerations $gpu.enabled -}}
{{ include "offramp.podSettings" (dict "root" . "nodeSelector" $nodes "tolerations" $tolerations "affinity" .Values.affinity) }}
{{- if .Values.topologySpread.enabled }}
topologySpreadConstraints:
  {{- range .Values.topologySpread.keys }}
  - topologyKey: {{ . }}
    maxSkew: {{ int64 $.Values.topologySpread.maxSkew }}
    whenUnsatisfiable: {{ $.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "offramp.serverSelector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. Takes a dict: root, component. */}}
{{- define "offramp.podMetadata" -}}
labels:
  {{- include "offramp.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "offramp.containerImage" -}}
image: {{ include "offramp.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "offramp.serverResources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if .Values.gpu.enabled -}}
{{- $_ := set $resources "limits" (merge (dict .Values.gpu.resourceName (int64 .Values.gpu.perPod)) (default dict $resources.limits)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* /tmp is the only folder that pods write to. A user without an entry in passwd needs a name. */}}
{{- define "offramp.writableHome" -}}
- {name: HOME, value: /tmp}
- {name: USER, value: offramp}
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
- {name: PYTHONUNBUFFERED, value: "1"}
{{- end -}}

{{- define "offramp.extraEnv" -}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "offramp.envFrom" -}}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
