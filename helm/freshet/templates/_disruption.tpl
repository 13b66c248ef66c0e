{{- define "freshet.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "freshet.metadata" (dict "root" .root "name" .name "component" .component) | nindent 2 }}
spec:
  {{- if not (kindIs "invalid" .pdb.minAvailable) }}
  minAvailable: {{ .pdb.minAvailable }}
  {{- else }}
  maxUnavailable: {{ .pdb.maxUnavailable }}
  {{- end }}
  # A pod that is not ready holds back no drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "freshet.selectorLabels" (list .root .component) | nindent 6 }}
      {{- with .pool }}
      freshet.io/pool: {{ . | quote }}
      {{- end }}
{{- end -}}
