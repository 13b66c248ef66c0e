{{/* What the rules and dashboards expect as labels of a target: list ROOT MORE. */}}
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
An expression of the rules whose selectors see this release only, by the labels that the relabelings give: list ROOT EXPR.
All selectors are of freshet_*, of series recorded from these, or of `up`.
*/}}
{{- define "freshet.scopedExpr" -}}
{{- $root := index . 0 -}}
{{- $scope := printf "{namespace=%q,release=%q}" (include "freshet.namespace" $root) $root.Release.Name -}}
{{- regexReplaceAll "((?:job:)?freshet_[a-z0-9_:]+|\\bup\\b)" (index . 1) (print "${1}" $scope) | replace "}{" "," -}}
{{- end -}}
