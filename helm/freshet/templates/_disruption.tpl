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
  # Pods that are not ready do not block node drains.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "freshet.selectorLabels" (list .root .component) | nindent 6 }}
      {{- with .pool }}
      freshet.io/pool: {{ . | quote }}
      {{- end }}
{{- end -}}
