{{/* How a serving pod gets its bundles: from the image, a volume, or by download. */}}

{{- define "offramp.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.tmpSizeLimit }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "offramp.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "offramp.bundleVolumes" -}}
{{- $bundles := .Values.bundles -}}
{{- if eq $bundles.source "pvc" -}}
- name: bundles
  persistentVolumeClaim: {claimName: {{ $bundles.pvc.claimName }}, readOnly: true}
{{- else if eq $bundles.source "download" -}}
- name: bundles
  emptyDir: {sizeLimit: {{ $bundles.download.sizeLimit }}}
- name: scripts
  configMap: {name: {{ include "offramp.fullname" . }}-scripts}
{{- end -}}
{{- end -}}

{{- define "offramp.bundleMounts" -}}
{{- $bundles := .Values.bundles -}}
{{- if ne $bundles.source "image" -}}
- name: bundles
  mountPath: {{ $bundles.path }}
  readOnly: true
  {{- if and (eq $bundles.source "pvc") $bundles.pvc.subPath }}
  subPath: {{ $bundles.pvc.subPath }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The container that downloads bundles, and the additional init containers of the values. */}}
{{- define "offramp.initContainers" -}}
{{- $download := .Values.bundles.download -}}
{{- if eq .Values.bundles.source "download" -}}
- name: fetch-bundles
  {{- include "offramp.containerImage" . | nindent 2 }}
  command: [python, /scripts/fetch_bundles.py]
  args:
    - {{ .Values.bundles.path }}
    - {{ toJson $download.archives | quote }}
  env:
    {{- include "offramp.writableHome" . | nindent 4 }}
    {{- if $download.tokenSecret.name }}
    - name: BUNDLE_TOKEN
      valueFrom:
        secretKeyRef: {name: {{ $download.tokenSecret.name }}, key: {{ $download.tokenSecret.key }}}
    {{- end }}
    {{- include "offramp.extraEnv" . | nindent 4 }}
  {{- include "offramp.envFrom" . | nindent 2 }}
  resources:
    requests: {cpu: 100m, memory: 256Mi}
    limits: {memory: 256Mi}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: bundles, mountPath: {{ .Values.bundles.path }}}
    - {name: scripts, mountPath: /scripts, readOnly: true}
{{- end }}
{{- with .Values.extraInitContainers }}
{{ toYaml . }}
{{- end }}
{{- end -}}
