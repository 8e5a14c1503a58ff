{{/* `policies` as JSON, without fields that are null. */}}
{{- define "offramp.policies" -}}
{{- include "offramp.withNumbers" .Values.policies -}}
{{- end -}}

{{/* A map as JSON. Strings that look like numbers become numbers inside rules and targets: maps with `rule` or `target`. */}}
{{- define "offramp.withNumbers" -}}
{{- $parts := list -}}
{{- range $key, $value := . -}}
{{- if and (kindIs "map" $value) (or (hasKey (default dict $value) "rule") (hasKey (default dict $value) "target")) -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) (include "offramp.numbers" $value)) -}}
{{- else if kindIs "map" $value -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) (include "offramp.withNumbers" $value)) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) (toJson $value)) -}}
{{- end -}}
{{- end -}}
{{- printf "{%s}" (join "," $parts) -}}
{{- end -}}

{{/*
A rule or target, or a part of one, as JSON. `--set` turns 0.1 into a string, and the server refuses strings where
it expects numbers. So every string that looks like a number becomes a number.
*/}}
{{- define "offramp.numbers" -}}
{{- $parts := list -}}
{{- if kindIs "map" . -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $json := ternary (toJson $value) (include "offramp.numbers" $value) (eq $key "rule") -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) $json) -}}
{{- end -}}
{{- end -}}
{{- printf "{%s}" (join "," $parts) -}}
{{- else if kindIs "slice" . -}}
{{- range . }}{{ $parts = append $parts (include "offramp.numbers" .) }}{{ end -}}
{{- printf "[%s]" (join "," $parts) -}}
{{- else if and (kindIs "string" .) (regexMatch "^[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$" (toString .)) -}}
{{- float64 . | toJson -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}
