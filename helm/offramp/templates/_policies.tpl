{{/* `policies` as JSON. null, which takes a field away, is left out. */}}
{{- define "offramp.policies" -}}
{{- include "offramp.withNumbers" .Values.policies -}}
{{- end -}}

{{/* A map with the numbers of the rules in it restored. A rule is a map with `rule`. */}}
{{- define "offramp.withNumbers" -}}
{{- $parts := list -}}
{{- range $key, $value := . -}}
{{- if and (kindIs "map" $value) (hasKey (default dict $value) "rule") -}}
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
A rule, or a part of one, as JSON. `--set` makes a string of 0.1, and the server takes no string for a
number: what looks like one is one.
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
