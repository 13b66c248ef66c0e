{{/* "true" if a pool has at least one engine according to the values. Argument: the pool's configuration. */}}
{{- define "freshet.poolHasEngines" -}}
{{- if gt (int (ternary .replicas .autoscaling.minReplicas (eq .autoscaling.kind "none"))) 0 }}true{{ end -}}
{{- end -}}

{{/* "true" if some pool has an engine even without a job. */}}
{{- define "freshet.hasEngines" -}}
{{- range $name, $pool := .Values.rollout.pools -}}
{{- $cfg := fromYaml (include "freshet.pool" (list $ $name)) -}}
{{- if and $cfg.enabled (include "freshet.poolHasEngines" $cfg) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/*
Pool of the smoke job: `tests.pool`, else, by name, the first that has engines, the first with an autoscaler, or the first; those
without the native engine last.
*/}}
{{- define "freshet.testPool" -}}
{{- $first := dict -}}
{{- range $name, $pool := .Values.rollout.pools -}}
{{- $cfg := fromYaml (include "freshet.pool" (list $ $name)) -}}
{{- if $cfg.enabled -}}
{{- $kind := "empty" -}}
{{- if include "freshet.poolHasEngines" $cfg }}{{ $kind = "running" }}{{ else if ne $cfg.autoscaling.kind "none" }}{{ $kind = "scaled" }}{{ end -}}
{{- if include "freshet.hasServer" $cfg }}{{ $kind = "server" }}{{ end -}}
{{- if not (hasKey $first $kind) }}{{ $_ := set $first $kind $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- coalesce .Values.tests.pool $first.running $first.scaled $first.empty $first.server -}}
{{- end -}}

{{/* "true" if the pool of the smoke job has the native engine, without which its tiny model may not be servable. */}}
{{- define "freshet.smokes" -}}
{{- if not (include "freshet.hasServer" (fromYaml (include "freshet.pool" (list . (include "freshet.testPool" .))))) }}true{{ end -}}
{{- end -}}

{{- define "freshet.testFlags" -}}
--server={{ include "freshet.fullname" . }}-controller.{{ include "freshet.namespace" . }}.svc:7070
{{- if include "freshet.tls" . }}, --ca=/etc/freshet/tls/ca.crt, --cert=/etc/freshet/tls/tls.crt, --key=/etc/freshet/tls/tls.key, --token-file=/etc/freshet/token/token
{{- end }}
{{- end -}}

{{- define "freshet.testContainer" -}}
image: {{ include "freshet.image" (list . dict .Values.image.control) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [freshet]
env:
  - {name: HOME, value: /tmp}
resources:
  {{- toYaml .Values.tests.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if include "freshet.tls" . }}
  - {name: tls, mountPath: /etc/freshet/tls, readOnly: true}
  - {name: token, mountPath: /etc/freshet/token, readOnly: true}
  {{- end }}
{{- end -}}
