{{/* Names, and the labels that selectors use. */}}

{{- define "offramp.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 47 characters: KubeRay appends to the name and refuses longer names. */}}
{{- define "offramp.fullname" -}}
{{- $name := include "offramp.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "offramp.selector" -}}
app.kubernetes.io/name: {{ include "offramp.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Selects pods that serve, in both modes. */}}
{{- define "offramp.serverSelector" -}}
{{ include "offramp.selector" . }}
app.kubernetes.io/component: server
{{- end -}}

{{/* Metadata of objects. Pods have the selector's labels only: a new chart version must not replace pods. */}}
{{- define "offramp.metadata" -}}
labels:
  {{- include "offramp.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
  {{- with .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "offramp.image" -}}
{{- $default := printf "%s%s" .Chart.AppVersion (ternary "-cuda" "" .Values.image.cuda) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default $default .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "offramp.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "offramp.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The Service that clients use. KubeRay derives its name from the RayService's. */}}
{{- define "offramp.service" -}}
{{- include "offramp.fullname" . -}}
{{- if eq .Values.mode "rayservice" -}}-serve-svc{{- end -}}
{{- end -}}

{{- define "offramp.servicePort" -}}
{{- if eq .Values.mode "rayservice" -}}8000{{- else -}}{{ int64 .Values.service.port }}{{- end -}}
{{- end -}}
