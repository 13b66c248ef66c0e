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
{{- $servers := list -}}
{{- range $flag, $server := dict "judge" $cfg.judge "reward-model" $cfg.rewardModel -}}
{{- $servers = append $servers (list $flag (fromYaml (include "freshet.askedModel" (list $root $flag $server)))) -}}
{{- end -}}
args:
  {{- range $servers }}
  {{- $flag := index . 0 }}
  {{- with index . 1 }}
  {{- if .url }}
  - {{ printf "--%s=%s" $flag .url | quote }}
  {{- if .apiKeySecret.name }}
  - {{ printf "--%s-token-file=/%s/key/%s" $flag $flag .apiKeySecret.key | quote }}
  {{- end }}
  {{- if .ca }}
  - {{ printf "--%s-ca=%s" $flag .ca | quote }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- if $python.enabled }}
  - --python-rewards=127.0.0.1:{{ int $python.port }}
  {{- end }}
  {{- if include "freshet.sandboxPods" $root }}
  - --sandbox=https://{{ include "freshet.peerName" (list $root "sandbox") }}:{{ int $sandbox.port }}
  - --sandbox-ca=/etc/freshet/tls/ca.crt
  - --sandbox-token-file=/etc/freshet/sandbox/token
  {{- else if $sandbox.enabled }}
  - --sandbox=http://127.0.0.1:{{ int $sandbox.port }}
  {{- end }}
initContainers:
  {{- if $python.enabled }}
  {{- include "freshet.pythonContainer" (list $root $python) | nindent 2 }}
  {{- end }}
  {{- if and $sandbox.enabled (not $sandbox.pods.enabled) }}
  {{- include "freshet.sandboxContainer" (list $root $sandbox) | nindent 2 }}
  {{- end }}
mounts:
  {{- if include "freshet.sandboxPods" $root }}
  - {name: sandbox-token, mountPath: /etc/freshet/sandbox, readOnly: true}
  {{- end }}
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
  {{- if include "freshet.sandboxPods" $root }}
  {{- include "freshet.sandboxTokenVolume" $root | nindent 2 }}
  {{- else if $sandbox.enabled }}
  - {name: sandbox, emptyDir: {medium: Memory, sizeLimit: {{ $sandbox.volumeSize | quote }}}}
  {{- end }}
{{- end -}}

{{/* "true" if the sandbox runs in pods of its own. */}}
{{- define "freshet.sandboxPods" -}}
{{- if and .Values.reward.enabled .Values.reward.sandbox.enabled .Values.reward.sandbox.pods.enabled }}true{{ end -}}
{{- end -}}

{{/* The token that reward workers present to sandboxes in pods of their own. */}}
{{- define "freshet.sandboxTokenVolume" -}}
- name: sandbox-token
  secret:
    secretName: {{ default (printf "%s-sandbox-token" (include "freshet.fullname" .)) .Values.reward.sandbox.pods.tokenSecret }}
    defaultMode: 0440
    items: [{key: token, path: token}]
{{- end -}}

{{/*
The sandbox: list ROOT SANDBOX. A sidecar of a reward worker starts before it, ends after it, and listens on loopback; only
probes and metrics are on the pod's network.
*/}}
{{- define "freshet.sandboxContainer" -}}
{{- $root := index . 0 -}}
{{- $sandbox := index . 1 -}}
{{- $pods := $sandbox.pods.enabled -}}
{{- $http := ternary "http" "sandbox-http" $pods -}}
{{- $httpPort := ternary 8081 8083 $pods -}}
- name: sandbox
  image: {{ include "freshet.image" (list $root $sandbox.image $root.Values.image.sandbox) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  {{- if not $pods }}
  restartPolicy: Always
  {{- end }}
  command: [freshet-sandbox]
  args:
    {{- if $pods }}
    - --listen={{ $root.Values.bindAddress }}:{{ int $sandbox.port }}
    - --tls-cert=/etc/freshet/tls/tls.crt
    - --tls-key=/etc/freshet/tls/tls.key
    - --token-file=/etc/freshet/sandbox/token
    {{- else }}
    - --listen=127.0.0.1:{{ int $sandbox.port }}
    {{- end }}
    - --http-listen={{ $root.Values.bindAddress }}:{{ $httpPort }}
    - --folder=/sandbox/programs
    - --isolation={{ $sandbox.isolation }}
    - --workers={{ int $sandbox.workers }}
    - --memory-mb={{ int $sandbox.memoryMb }}
    - --folder-mb={{ int $sandbox.folderMb }}
    - --max-tasks={{ int $sandbox.maxTasks }}
  env:
    - {name: HOME, value: /sandbox}
  ports:
    {{- if $pods }}
    - {name: https, containerPort: {{ int $sandbox.port }}}
    {{- end }}
    - {name: {{ $http }}, containerPort: {{ $httpPort }}}
  startupProbe:
    httpGet: {path: /healthz, port: {{ $http }}}
    periodSeconds: 2
    timeoutSeconds: 10
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: {{ $http }}}
    periodSeconds: 30
    timeoutSeconds: 10
  resources:
    {{- toYaml $sandbox.resources | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: sandbox, mountPath: /sandbox}
    {{- if $pods }}
    - {name: tls, mountPath: /etc/freshet/tls, readOnly: true}
    - {name: sandbox-token, mountPath: /etc/freshet/sandbox, readOnly: true}
    {{- end }}
{{- end -}}

{{/*
The reward server, a sidecar that starts before the worker and ends after it: list ROOT PYTHON. It listens on loopback; only
probes and metrics are on the pod's network.
*/}}
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
    - --http-listen={{ $root.Values.bindAddress }}:8084
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
  ports:
    - {name: python-http, containerPort: 8084}
  startupProbe:
    httpGet: {path: /healthz, port: python-http}
    periodSeconds: 2
    timeoutSeconds: 10
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: python-http}
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
