{{/* Inference servers beside rollouts (`rollout.server`), and OpenAI's API on rollouts (`rollout.openai`). */}}

{{/* "true" if a pool generates on an inference server. Argument: the pool's configuration. */}}
{{- define "freshet.hasServer" -}}
{{- if ne .engine "native" }}true{{ end -}}
{{- end -}}

{{/* "true" if some pool generates on an inference server. */}}
{{- define "freshet.servers" -}}
{{- range $name, $pool := .Values.rollout.pools -}}
{{- $cfg := fromYaml (include "freshet.pool" (list $ $name)) -}}
{{- if and $cfg.enabled (include "freshet.hasServer" $cfg) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Path of the supervisor in the container `engine`. */}}
{{- define "freshet.supervisor" -}}
/etc/freshet/engine/supervise.sh
{{- end -}}

{{/* Parts of a rollout's pod that depend on its engine and on OpenAI's API, for freshet.podTemplate: list ROOT CFG. */}}
{{- define "freshet.rolloutParts" -}}
{{- $root := index . 0 -}}
{{- $cfg := index . 1 -}}
{{- $server := include "freshet.hasServer" $cfg -}}
{{- $openai := $cfg.openai.enabled -}}
args:
  {{- if $server }}
  - --engine={{ $cfg.engine }}
  - --engine-address=127.0.0.1:{{ int $cfg.server.port }}
  - --engine-dir=/engine
  {{- if eq $cfg.server.weights "nccl" }}
  - --engine-weights=nccl
  {{- end }}
  {{- end }}
  {{- if $openai }}
  - --openai-listen={{ $root.Values.bindAddress }}:{{ int $cfg.openai.port }}
  - --openai-token-file=/etc/freshet/openai/token
  {{- end }}
{{- if $openai }}
ports:
  - {name: openai, containerPort: {{ int $cfg.openai.port }}}
{{- end }}
mounts:
  {{- if $server }}
  - {name: engine, mountPath: /engine}
  {{- end }}
  {{- if $openai }}
  - {name: openai-token, mountPath: /etc/freshet/openai, readOnly: true}
  {{- end }}
volumes:
  {{- if $server }}
  - {name: engine, emptyDir: {medium: Memory, sizeLimit: {{ $cfg.server.memoryVolumeSize | quote }}}}
  - {name: engine-tmp, emptyDir: {}}
  - {name: supervisor, configMap: {name: {{ include "freshet.fullname" $root }}-supervisor}}
  {{- end }}
  {{- if $openai }}
  - name: openai-token
    secret: {secretName: {{ $cfg.openai.tokenSecret }}, defaultMode: 0440, items: [{key: token, path: token}]}
  {{- end }}
{{- if $server }}
annotations:
  checksum/supervisor: {{ $root.Files.Get "files/supervise.sh" | sha256sum }}
initContainers:
  {{- include "freshet.serverContainer" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The inference server, a sidecar that starts before the rollout and ends after it: list ROOT CFG. It listens on loopback, which
only an exec probe can reach, and does not serve until a job needs it.
*/}}
{{- define "freshet.serverContainer" -}}
{{- $root := index . 0 -}}
{{- $cfg := index . 1 -}}
{{- $server := $cfg.server -}}
- name: engine
  image: {{ include "freshet.serverImage" . | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  restartPolicy: Always
  command: [bash, {{ include "freshet.supervisor" . }}, /engine, {{ int $server.port | quote }}]
  {{- $args := $server.args -}}
  {{- if eq $server.weights "nccl" }}{{ $args = concat (list "--weight-transfer-config={\"backend\":\"nccl\"}") $args }}{{ end -}}
  {{- with $args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    - {name: ENGINE, value: {{ $cfg.engine }}}
    - {name: HOME, value: /tmp}
    - {name: USER, value: freshet}
    {{- with $server.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  livenessProbe:
    exec:
      command: [bash, {{ include "freshet.supervisor" . }}, --probe, /engine, {{ int $server.port | quote }}]
    {{- toYaml $server.livenessProbe | nindent 4 }}
  resources:
    {{- include "freshet.resources" (dict "resources" $server.resources "gpu" (include "freshet.serverGpu" $cfg | fromYaml)) | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: engine, mountPath: /engine}
    - {name: supervisor, mountPath: /etc/freshet/engine, readOnly: true}
    - {name: engine-tmp, mountPath: /tmp}
    {{- if $cfg.shm.sizeLimit }}
    - {name: dshm, mountPath: /dev/shm}
    {{- end }}
{{- end -}}

{{/* GPUs of the inference server, in the form of `gpu`; none if there is no server. Argument: the pool's configuration. */}}
{{- define "freshet.serverGpu" -}}
count: {{ if include "freshet.hasServer" . }}{{ int .server.gpus }}{{ else }}0{{ end }}
resourceName: {{ .gpu.resourceName }}
{{- end -}}

{{/* Image of the inference server, with tag, digest or both: list ROOT CFG. */}}
{{- define "freshet.serverImage" -}}
{{- $image := (index . 1).server.image -}}
{{- with default (index . 0).Values.image.registry $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}{{ with $image.tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Bytes of a quantity of memory. */}}
{{- define "freshet.bytes" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "K" 1e3 "Ki" 1024 "M" 1e6 "Mi" 1048576 "G" 1e9 "Gi" 1073741824 "T" 1e12 "Ti" 1099511627776 "P" 1e15 "Pi" 1125899906842624 -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Checks of a pool's engine: list ROOT NAME CFG. */}}
{{- define "freshet.validateEngine" -}}
{{- $root := index . 0 -}}
{{- $where := printf "rollout.pools.%s" (index . 1) -}}
{{- $cfg := index . 2 -}}
{{- $server := $cfg.server -}}
{{- if not (include "freshet.hasServer" $cfg) -}}
{{- if (default dict (get $root.Values.rollout.pools (index . 1))).server -}}
{{- fail (printf "%s.server is set, but %s.engine is native, which has no server: set engine to vllm or sglang, or remove server" $where $where) -}}
{{- end -}}
{{- else -}}
{{- if not (and $server.image.repository (or $server.image.tag $server.image.digest)) -}}
{{- fail (printf "%s.engine is %s without an image of the server: set %s.server.image to {registry, repository, tag}, or digest instead of tag" $where $cfg.engine $where) -}}
{{- end -}}
{{- if not $server.memoryVolumeSize -}}
{{- fail (printf "%s.engine is %s, but %s.server.memoryVolumeSize is empty: set it to four times the size of the weights in bf16" $where $cfg.engine $where) -}}
{{- end -}}
{{- $limit := (default dict $cfg.resources.limits).memory -}}
{{- if and $limit (le (include "freshet.bytes" $limit | float64) (include "freshet.bytes" $server.memoryVolumeSize | float64)) -}}
{{- fail (printf "%s.server.memoryVolumeSize is %s, but %s.resources.limits.memory is %v: the volume counts against that limit; set the limit above it" $where $server.memoryVolumeSize $where $limit) -}}
{{- end -}}
{{- if eq $server.weights "nccl" -}}
{{- if ne $cfg.engine "vllm" -}}
{{- fail (printf "%s.server.weights is nccl with engine %s, which has no such route: set it to folder" $where $cfg.engine) -}}
{{- end -}}
{{- if ne (int $cfg.gpu.count) 1 -}}
{{- fail (printf "%s.server.weights is nccl, but %s.gpu.count is %d: the rollout broadcasts from a GPU of its own; set gpu.count to 1" $where $where (int $cfg.gpu.count)) -}}
{{- end -}}
{{- else if gt (int $cfg.gpu.count) 0 -}}
{{- fail (printf "%s.gpu.count is %d with engine %s: the server generates, not the rollout; set %s.server.gpus instead" $where (int $cfg.gpu.count) $cfg.engine $where) -}}
{{- end -}}
{{- range $arg := $server.args -}}
{{- if regexMatch "^--(host|port|api-key|served-model-name)(=|$)" $arg -}}
{{- fail (printf "%s.server.args has %s, which is not yours to set: the rollout uses the server on loopback (server.port), without a key" $where $arg) -}}
{{- end -}}
{{- if and (eq $server.weights "nccl") (regexMatch "^--weight-transfer-config(=|$)" $arg) -}}
{{- fail (printf "%s.server.args has %s, but %s.server.weights is nccl, which sets this flag: remove it" $where $arg $where) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := list (dict "name" "the gRPC port" "port" 7071) (dict "name" "the metrics port" "port" 8081) -}}
{{- if $cfg.openai.enabled -}}
{{- $ports = append $ports (dict "name" "rollout.openai.port" "port" (int $cfg.openai.port)) -}}
{{- end -}}
{{- if include "freshet.hasServer" $cfg -}}
{{- $ports = append $ports (dict "name" (printf "%s.server.port" $where) "port" (int $server.port)) -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $port := $ports -}}
{{- with get $taken (toString $port.port) -}}
{{- fail (printf "%s is %d, which is %s, too: set another one" $port.name $port.port .) -}}
{{- end -}}
{{- $_ := set $taken (toString $port.port) $port.name -}}
{{- end -}}
{{- end -}}
