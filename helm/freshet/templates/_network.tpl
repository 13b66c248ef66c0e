{{/* Peer entry of a role: list ROOT ROLE. */}}
{{- define "freshet.peer" -}}
- podSelector:
    matchLabels:
      {{- include "freshet.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* Egress rule to a role's service: list ROOT ROLE. */}}
{{- define "freshet.edge" -}}
- ports: [{port: {{ include "freshet.port" (index . 1) }}}]
  to:
    {{- include "freshet.peer" . | nindent 4 }}
{{- end -}}

{{/* Egress rule to Redis. */}}
{{- define "freshet.redisEdge" -}}
{{- if .Values.redis.enabled -}}
- ports: [{port: 6379}]
  to:
    {{- include "freshet.peer" (list . "redis") | nindent 4 }}
{{- else -}}
- ports: [{port: {{ int .Values.redis.external.port }}}]
  to:
    {{- range .Values.networkPolicy.externalRedis.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
{{- end -}}
{{- end -}}
