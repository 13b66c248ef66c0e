{{/* The certificate names of a role, as a YAML list: list ROOT ROLE. */}}
{{- define "freshet.principals" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $own := get $root.Values.auth.principals $role -}}
{{- if $own -}}
{{- toYaml $own -}}
{{- else -}}
{{- toYaml (list (include "freshet.peerName" (list $root $role))) -}}
{{- end -}}
{{- end -}}

{{/* policies/ROLE.json with "@ROLE" replaced by that role's names: list ROOT ROLE. */}}
{{- define "freshet.policy" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (printf "policies/%s.json" (index . 1)) -}}
{{- range $role := list "controller" "rollout" "reward" "env" "trainer" "keda" -}}
{{- $names := list -}}
{{- range $name := fromYamlArray (include "freshet.principals" (list $root $role)) -}}
{{- $names = append $names (quote $name) -}}
{{- end -}}
{{- $text = replace (printf "\"@%s\"" $role) (join ", " $names) $text -}}
{{- end -}}
{{- $text | trim -}}
{{- end -}}
