{{/*
All certificates, as a YAML list of {name, dnsNames, ipAddresses}. Peers and policies identify a role by the name ROLE.NAMESPACE.svc.
*/}}
{{- define "freshet.identities" -}}
{{- $root := . -}}
{{- $fullname := include "freshet.fullname" . -}}
{{- $namespace := include "freshet.namespace" . -}}
{{- $roles := list "controller" "rollout" "trainer" "user" -}}
{{- if .Values.reward.enabled }}{{ $roles = append $roles "reward" }}{{ end -}}
{{- if .Values.env.enabled }}{{ $roles = append $roles "env" }}{{ end -}}
{{- if .Values.redis.enabled }}{{ $roles = append $roles "redis" }}{{ end -}}
{{- if include "freshet.keda" . }}{{ $roles = append $roles "keda" }}{{ end -}}
{{- $served := list "controller" "redis" -}}
{{- if include "freshet.sandboxPods" . }}{{ $served = append $served "sandbox" }}{{ $roles = append $roles "sandbox" }}{{ end -}}
{{- range fromYamlArray (include "freshet.environmentPools" .) -}}
{{- $served = append $served (printf "env-%s" .) -}}
{{- $roles = append $roles (printf "env-%s" .) -}}
{{- end -}}
{{- range fromYamlArray (include "freshet.modelPools" .) -}}
{{- $served = append $served (printf "model-%s" .) -}}
{{- $roles = append $roles (printf "model-%s" .) -}}
{{- end -}}
{{- $out := list -}}
{{- range $role := $roles -}}
{{- $names := list (include "freshet.peerName" (list $root $role)) -}}
{{- $ips := list -}}
{{- if has $role $served -}}
{{- $names = concat $names (list (printf "%s-%s" $fullname $role) (printf "%s-%s.%s" $fullname $role $namespace) (printf "%s-%s.%s.svc.%s" $fullname $role $namespace $root.Values.clusterDomain)) -}}
{{- end -}}
{{- if eq $role "controller" -}}
{{- $names = append $names "localhost" -}}
{{- $ips = append $ips "127.0.0.1" -}}
{{- range $extra := $root.Values.tls.extraNames -}}
{{- if regexMatch "^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$|:" $extra -}}
{{- $ips = append $ips $extra -}}
{{- else -}}
{{- $names = append $names $extra -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $out = append $out (dict "name" $role "dnsNames" $names "ipAddresses" $ips) -}}
{{- end -}}
{{- if eq .Values.tls.mode "generated" -}}
{{- range $name, $names := .Values.tls.generated.extra -}}
{{- $out = append $out (dict "name" $name "dnsNames" $names "ipAddresses" list) -}}
{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}
