{{/* Pools of model servers (`modelServers`): `freshet serve` for reward models and judges. */}}

{{/* Configuration of a pool: the keys of `modelServers`, overridden by those of the pool: list ROOT POOL. */}}
{{- define "freshet.modelPool" -}}
{{- $root := index . 0 -}}
{{- $pool := default dict (get $root.Values.modelServers.pools (index . 1)) -}}
{{- include "freshet.overlay" (list (set (omit $root.Values.modelServers "pools") "enabled" true) $pool) -}}
{{- end -}}

{{/* Names of the pools that are enabled, as a YAML list. */}}
{{- define "freshet.modelPools" -}}
{{- $names := list -}}
{{- range $name, $pool := .Values.modelServers.pools -}}
{{- if and (not (kindIs "invalid" $pool)) (fromYaml (include "freshet.modelPool" (list $ $name))).enabled }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* Secret and key with a pool's API key, as YAML. Argument: list ROOT CFG. */}}
{{- define "freshet.modelKey" -}}
{{- $secret := (index . 1).apiKeySecret -}}
{{- if $secret.name -}}
{{- toYaml $secret -}}
{{- else -}}
{{- toYaml (dict "name" (printf "%s-model-key" (include "freshet.fullname" (index . 0))) "key" "api-key") -}}
{{- end -}}
{{- end -}}

{{/*
A server that reward workers ask (`reward.judge`, `reward.rewardModel`), as YAML with url, apiKeySecret, and ca (the flag's
file) with caConfigMap if it is mounted: list ROOT FLAG SERVER. With `pool` they are those of a pool.
*/}}
{{- define "freshet.askedModel" -}}
{{- $root := index . 0 -}}
{{- $flag := index . 1 -}}
{{- $server := index . 2 -}}
{{- if $server.pool -}}
{{- $cfg := fromYaml (include "freshet.modelPool" (list $root $server.pool)) -}}
url: https://{{ include "freshet.peerName" (list $root (printf "model-%s" $server.pool)) }}:{{ include "freshet.port" "model" }}{{ if eq $flag "judge" }}/v1{{ end }}
apiKeySecret:
  {{- include "freshet.modelKey" (list $root $cfg) | nindent 2 }}
caConfigMap: {name: ""}
ca: /etc/freshet/tls/ca.crt
{{- else -}}
{{- toYaml $server }}
ca: {{ if $server.caConfigMap.name }}/{{ $flag }}/ca/{{ $server.caConfigMap.key }}{{ else }}""{{ end }}
{{- end -}}
{{- end -}}

{{/* The pod of a pool: list ROOT POOL CFG ANNOTATIONS. */}}
{{- define "freshet.modelPod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $cfg := index . 2 -}}
{{- $key := fromYaml (include "freshet.modelKey" (list $root $cfg)) -}}
{{- $gpu := gt (int $cfg.gpu.count) 0 -}}
metadata:
  labels:
    {{- include "freshet.selectorLabels" (list $root "model") | nindent 4 }}
    app.kubernetes.io/part-of: freshet
    freshet.io/pool: {{ $name | quote }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (deepCopy (index . 3)) $cfg.podAnnotations $root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "freshet.serviceAccountName" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int $cfg.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- include "freshet.scheduling" (dict "root" $root "cfg" $cfg "component" "model" "pool" $name) | nindent 2 }}
  containers:
    - name: serve
      image: {{ include "freshet.image" (list $root $cfg.image (ternary $root.Values.image.computeCuda $root.Values.image.compute $gpu)) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [freshet]
      args:
        - serve
        - {{ $cfg.model | quote }}
        - --listen={{ $root.Values.bindAddress }}:{{ include "freshet.port" "model" }}
        - --http-listen={{ $root.Values.bindAddress }}:8081
        - --dtype={{ $cfg.dtype }}
        {{- if $gpu }}
        - --device=cuda
        {{- end }}
        - --drain-timeout-s={{ int $cfg.drainTimeoutSeconds }}
        - --api-key-file=/etc/freshet/key/api-key
        {{- if include "freshet.tls" $root }}
        - --tls-cert=/etc/freshet/tls/tls.crt
        - --tls-key=/etc/freshet/tls/tls.key
        {{- else }}
        - --insecure
        {{- end }}
        {{- range $cfg.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - {name: HOME, value: /tmp}
        {{- with $cfg.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: api, containerPort: {{ include "freshet.port" "model" }}}
        - {name: http, containerPort: 8081}
      {{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
      {{ $probe }}Probe:
        httpGet: {path: {{ $path }}, port: http}
        {{- toYaml (get $cfg.probes $probe) | nindent 8 }}
      {{- end }}
      {{- if gt (int $cfg.preStopSleepSeconds) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ int $cfg.preStopSleepSeconds }}}
      {{- end }}
      resources:
        {{- include "freshet.resources" $cfg | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.containerSecurityContext | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: key, mountPath: /etc/freshet/key, readOnly: true}
        {{- if include "freshet.tls" $root }}
        - {name: tls, mountPath: /etc/freshet/tls, readOnly: true}
        {{- end }}
        {{- if $cfg.models.existingClaim }}
        - {name: models, mountPath: {{ $cfg.models.mountPath }}, readOnly: true}
        {{- end }}
        {{- with $cfg.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $cfg.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - {name: tmp, emptyDir: {}}
    - {name: key, secret: {secretName: {{ $key.name }}, defaultMode: 0440, items: [{key: {{ $key.key }}, path: api-key}]}}
    {{- if include "freshet.tls" $root }}
    {{- include "freshet.tlsVolume" (list $root (printf "model-%s" $name)) | nindent 4 }}
    {{- end }}
    {{- with $cfg.models.existingClaim }}
    - {name: models, persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}}
    {{- end }}
    {{- with $cfg.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Checks of the pools, and of reward workers that ask one. */}}
{{- define "freshet.validateModels" -}}
{{- $pools := fromYamlArray (include "freshet.modelPools" .) -}}
{{- range $name := $pools -}}
{{- $where := printf "modelServers.pools.%s" $name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,16}[a-z0-9])?$" $name) -}}
{{- fail (printf "%s: a pool's name has at most 18 lower-case letters, digits and dashes, and begins and ends with a letter or digit" $where) -}}
{{- end -}}
{{- $cfg := fromYaml (include "freshet.modelPool" (list $ $name)) -}}
{{- include "freshet.validateGrace" (list $where $cfg) -}}
{{- include "freshet.validateMetricScaling" (list $where $cfg) -}}
{{- if not $cfg.model -}}
{{- fail (printf "%s.model is empty: set it to the model's directory in the pods, such as %s/MODEL" $where $cfg.models.mountPath) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "judge" "rewardModel" -}}
{{- $server := get $.Values.reward $key -}}
{{- if $server.pool -}}
{{- if $server.url -}}
{{- fail (printf "reward.%s.pool and reward.%s.url are both set: remove one of them" $key $key) -}}
{{- end -}}
{{- if not (has $server.pool $pools) -}}
{{- fail (printf "reward.%s.pool is %s, but there is no modelServers.pools.%s that is enabled: add it, or set reward.%s.url" $key $server.pool $server.pool $key) -}}
{{- end -}}
{{- if not (include "freshet.tls" $) -}}
{{- fail (printf "reward.%s.pool is %s without TLS: reward workers send the API key over TLS only; choose another tls.mode, or remove reward.%s.pool" $key $server.pool $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
