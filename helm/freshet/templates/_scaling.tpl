{{/*
Autoscaling of a Deployment by the sum of a metric over its pool: dict root, component, name (of the Deployment), pool,
scaling, metric, matchers (labels of the series), target (per pod).
*/}}
{{- define "freshet.metricScaling" -}}
{{- $scaling := .scaling -}}
{{- $metadata := dict "root" .root "name" .name "component" .component "labels" (dict "freshet.io/pool" .pool) -}}
{{- $release := .root.Release.Name -}}
{{- if eq $scaling.kind "hpa" }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "freshet.metadata" $metadata | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .name }}
  minReplicas: {{ int $scaling.minReplicas }}
  maxReplicas: {{ int $scaling.maxReplicas }}
  metrics:
    # The metric is the sum over the pool.
    - type: External
      external:
        metric:
          name: {{ .metric }}
          selector:
            matchLabels:
              {{- toYaml (set (deepCopy .matchers) "release" $release) | nindent 14 }}
        target: {type: AverageValue, averageValue: {{ int .target | quote }}}
  {{- with $scaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else if eq $scaling.kind "keda" }}
{{- $where := printf "namespace=%q,release=%q" (include "freshet.namespace" .root) $release }}
{{- range $label := keys .matchers | sortAlpha }}{{ $where = printf "%s,%s=%q" $where $label (get $.matchers $label) }}{{ end }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "freshet.metadata" $metadata | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .name }}
  minReplicaCount: {{ int $scaling.minReplicas }}
  maxReplicaCount: {{ int $scaling.maxReplicas }}
  {{- with $scaling.behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ $scaling.prometheusAddress | quote }}
        query: {{ printf "sum(%s{%s})" .metric $where | squote }}
        threshold: {{ int .target | quote }}
        ignoreNullValues: "false"
{{- end }}
{{- end -}}

{{/* Checks of such a pool's autoscaling: list WHERE CFG. */}}
{{- define "freshet.validateMetricScaling" -}}
{{- $where := index . 0 -}}
{{- $scaling := (index . 1).autoscaling -}}
{{- if ne $scaling.kind "none" -}}
{{- include "freshet.validateBounds" (list $where $scaling) -}}
{{- end -}}
{{- if and (eq $scaling.kind "keda") (not $scaling.prometheusAddress) -}}
{{- fail (printf "%s.autoscaling.kind is keda without a Prometheus: set %s.autoscaling.prometheusAddress" $where $where) -}}
{{- end -}}
{{- end -}}
