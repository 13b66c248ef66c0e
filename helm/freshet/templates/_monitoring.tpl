{{/* What the rules and dashboards expect as labels of a target: list ROOT MORE. */}}
{{- define "freshet.relabelings" -}}
- {targetLabel: job, replacement: freshet}
- {sourceLabels: [__meta_kubernetes_pod_name], targetLabel: instance}
- {sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_instance], targetLabel: release}
- {sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], targetLabel: role}
- {sourceLabels: [__meta_kubernetes_pod_label_freshet_io_pool], targetLabel: pool}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end -}}
