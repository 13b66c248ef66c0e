{{/* Python reward functions beside reward workers (`reward.python`). */}}

{{/* Parts of a reward worker's pod that depend on them, for freshet.podTemplate: list ROOT CFG. */}}
{{- define "freshet.rewardParts" -}}
{{- $root := index . 0 -}}
{{- $python := (index . 1).python -}}
{{- if $python.enabled -}}
args:
  - --python-rewards=127.0.0.1:{{ int $python.port }}
initContainers:
  {{- include "freshet.pythonContainer" (list $root $python) | nindent 2 }}
volumes:
  - {name: python-tmp, emptyDir: {}}
  {{- with $python.filesConfigMap }}
  - {name: python-rewards, configMap: {name: {{ . }}}}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The reward server, a sidecar that starts before the worker and ends after it: list ROOT PYTHON. It listens on loopback. */}}
{{- define "freshet.pythonContainer" -}}
{{- $root := index . 0 -}}
{{- $python := index . 1 -}}
- name: python
  image: {{ include "freshet.image" (list $root $python.image $root.Values.image.rewardPython) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  restartPolicy: Always
  command: [python3, -m, freshet.reward_server]
  args:
    - --listen=127.0.0.1:{{ int $python.port }}
    - --processes={{ int $python.processes }}
    - --seconds={{ int $python.seconds }}
    - --memory-mb={{ int $python.memoryMb }}
    {{- range $python.functions }}
    - {{ . | quote }}
    {{- end }}
  workingDir: {{ if $python.filesConfigMap }}/rewards{{ else }}/tmp{{ end }}
  env:
    - {name: HOME, value: /tmp}
    {{- with $python.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $probe := printf "import socket; socket.create_connection(('127.0.0.1', %d), 5)" (int $python.port) }}
  startupProbe:
    exec: {command: [python3, -c, {{ $probe | quote }}]}
    periodSeconds: 2
    timeoutSeconds: 10
    failureThreshold: 60
  livenessProbe:
    exec: {command: [python3, -c, {{ $probe | quote }}]}
    periodSeconds: 30
    timeoutSeconds: 10
  resources:
    {{- toYaml $python.resources | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: python-tmp, mountPath: /tmp}
    {{- if $python.filesConfigMap }}
    - {name: python-rewards, mountPath: /rewards, readOnly: true}
    {{- end }}
{{- end -}}
