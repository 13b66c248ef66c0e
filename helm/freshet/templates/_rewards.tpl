{{/*
Python reward functions (`reward.python`) and the sandbox (`reward.sandbox`) beside reward workers, and the servers that they
ask (`reward.judge`, `reward.rewardModel`).
*/}}

{{/* Parts of a reward worker's pod that depend on them, for freshet.podTemplate: list ROOT CFG. */}}
{{- define "freshet.rewardParts" -}}
{{- $root := index . 0 -}}
{{- $cfg := index . 1 -}}
{{- $python := $cfg.python -}}
{{- $sandbox := $cfg.sandbox -}}
{{- $servers := list (list "judge" $cfg.judge) (list "reward-model" $cfg.rewardModel) -}}
args:
  {{- range $servers }}
  {{- $flag := index . 0 }}
  {{- with index . 1 }}
  {{- if .url }}
  - {{ printf "--%s=%s" $flag .url | quote }}
  {{- if .apiKeySecret.name }}
  - {{ printf "--%s-token-file=/%s/key/%s" $flag $flag .apiKeySecret.key | quote }}
  {{- end }}
  {{- if .caConfigMap.name }}
  - {{ printf "--%s-ca=/%s/ca/%s" $flag $flag .caConfigMap.key | quote }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- if $python.enabled }}
  - --python-rewards=127.0.0.1:{{ int $python.port }}
  {{- end }}
  {{- if $sandbox.enabled }}
  - --sandbox=http://127.0.0.1:{{ int $sandbox.port }}
  {{- end }}
initContainers:
  {{- if $python.enabled }}
  {{- include "freshet.pythonContainer" (list $root $python) | nindent 2 }}
  {{- end }}
  {{- if $sandbox.enabled }}
  {{- include "freshet.sandboxContainer" (list $root $sandbox) | nindent 2 }}
  {{- end }}
mounts:
  {{- range $servers }}
  {{- $flag := index . 0 }}
  {{- with index . 1 }}
  {{- if and .url .apiKeySecret.name }}
  - {name: {{ $flag }}-key, mountPath: /{{ $flag }}/key, readOnly: true}
  {{- end }}
  {{- if and .url .caConfigMap.name }}
  - {name: {{ $flag }}-ca, mountPath: /{{ $flag }}/ca, readOnly: true}
  {{- end }}
  {{- end }}
  {{- end }}
volumes:
  {{- range $servers }}
  {{- $flag := index . 0 }}
  {{- with index . 1 }}
  {{- if and .url .apiKeySecret.name }}
  - {name: {{ $flag }}-key, secret: {secretName: {{ .apiKeySecret.name | quote }}}}
  {{- end }}
  {{- if and .url .caConfigMap.name }}
  - {name: {{ $flag }}-ca, configMap: {name: {{ .caConfigMap.name | quote }}}}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- if $python.enabled }}
  - {name: python-tmp, emptyDir: {}}
  {{- with $python.filesConfigMap }}
  - {name: python-rewards, configMap: {name: {{ . }}}}
  {{- end }}
  {{- end }}
  {{- if $sandbox.enabled }}
  - {name: sandbox, emptyDir: {medium: Memory, sizeLimit: {{ $sandbox.volumeSize | quote }}}}
  {{- end }}
{{- end -}}

{{/*
The sandbox, a sidecar that starts before the worker and ends after it: list ROOT SANDBOX. It listens on loopback, which only
an exec probe can reach.
*/}}
{{- define "freshet.sandboxContainer" -}}
{{- $root := index . 0 -}}
{{- $sandbox := index . 1 -}}
{{- $probe := printf "import urllib.request; urllib.request.urlopen('http://127.0.0.1:%d/healthz', timeout=5)" (int $sandbox.port) -}}
- name: sandbox
  image: {{ include "freshet.image" (list $root $sandbox.image $root.Values.image.sandbox) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  restartPolicy: Always
  command: [freshet-sandbox]
  args:
    - --listen=127.0.0.1:{{ int $sandbox.port }}
    - --folder=/sandbox/programs
    - --isolation={{ $sandbox.isolation }}
    - --workers={{ int $sandbox.workers }}
    - --memory-mb={{ int $sandbox.memoryMb }}
    - --folder-mb={{ int $sandbox.folderMb }}
    - --max-tasks={{ int $sandbox.maxTasks }}
  env:
    - {name: HOME, value: /sandbox}
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
    {{- toYaml $sandbox.resources | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: sandbox, mountPath: /sandbox}
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
