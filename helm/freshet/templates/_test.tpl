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
