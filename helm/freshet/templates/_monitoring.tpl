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
