{{/*
`policies` as JSON. `--set` makes a string of 0.1, and the server takes no string for a number:
numbers inside rules become numbers again. And null, which takes a field away, is left out.
*/}}
{{- define "offramp.policies" -}}
{{- $policies := dict -}}
{{- range $model, $policy := .Values.policies -}}
{{- $_ := set $policies $model (include "offramp.withNumbers" $policy | fromJson) -}}
{{- end -}}
{{- toJson $policies -}}
{{- end -}}

{{/* A map, with the numbers of every rule in it restored. A rule is a map with `rule`. */}}
{{- define "offramp.withNumbers" -}}
{{- $out := dict -}}
{{- $isRule := hasKey . "rule" -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $out $key (include "offramp.withNumbers" $value | fromJson) -}}
{{- else if and $isRule (ne $key "rule") (kindIs "string" $value) (regexMatch "^[0-9.]+([eE][-+]?[0-9]+)?$" (toString $value)) -}}
{{- $_ := set $out $key (float64 $value) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}
