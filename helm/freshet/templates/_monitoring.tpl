{{/*
The endpoints of a monitor: dict root, interval, relabelings. Those of containers beside a reward worker are targets of their
own, POD/CONTAINER with the container as role.
*/}}
{{- define "freshet.metricsEndpoints" -}}
{{- $given := . -}}
{{- $beside := dict "http" "" -}}
{{- $reward := .root.Values.reward -}}
{{- if and $reward.enabled $reward.sandbox.enabled (not $reward.sandbox.pods.enabled) }}{{ $_ := set $beside "sandbox-http" "sandbox" }}{{ end -}}
{{- if and $reward.enabled $reward.python.enabled }}{{ $_ := set $beside "python-http" "python" }}{{ end -}}
{{- if .root.Values.environments.pools }}{{ $_ := set $beside "env-http" "" }}{{ end -}}
{{- range $port, $container := $beside }}
- port: {{ $port }}
  path: /metrics
  interval: {{ $given.interval }}
  # Freshet's metrics use the label `job` for the id of a job. Servers of environments run code that is not trusted, and may
  # not choose the labels of their target.
  honorLabels: {{ ne $port "env-http" }}
  relabelings:
    {{- include "freshet.relabelings" (list $given.root list) | nindent 4 }}
    {{- if $container }}
    - {sourceLabels: [__meta_kubernetes_pod_name], targetLabel: instance, replacement: "$1/{{ $container }}"}
    - {targetLabel: role, replacement: {{ $container }}}
    {{- end }}
    {{- with $given.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* The target labels that rules and dashboards require: list ROOT MORE. */}}
{{- define "freshet.relabelings" -}}
- {targetLabel: job, replacement: freshet}
- {sourceLabels: [__meta_kubernetes_namespace], targetLabel: namespace}
- {sourceLabels: [__meta_kubernetes_pod_name], targetLabel: instance}
- {sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_instance], targetLabel: release}
- {sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], targetLabel: role}
- {sourceLabels: [__meta_kubernetes_pod_label_freshet_io_pool], targetLabel: pool}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
A rule's expression, restricted to this release by the labels that the relabelings add: list ROOT EXPR.
Selectors may only use freshet_*, series recorded from them, and `up`.
*/}}
{{- define "freshet.scopedExpr" -}}
{{- $root := index . 0 -}}
{{- $scope := printf "{namespace=%q,release=%q}" (include "freshet.namespace" $root) $root.Release.Name -}}
{{- regexReplaceAll "((?:job:)?freshet_[a-z0-9_:]+|\\bup\\b)" (index . 1) (print "${1}" $scope) | replace "}{" "," -}}
{{- end -}}
