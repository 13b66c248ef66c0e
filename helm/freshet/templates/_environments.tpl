{{/* Pools of environments (`environments`). */}}

{{/* Configuration of a pool: the keys of `environments`, overridden by those of the pool: list ROOT POOL. */}}
{{- define "freshet.environmentPool" -}}
{{- $root := index . 0 -}}
{{- $pool := default dict (get $root.Values.environments.pools (index . 1)) -}}
{{- include "freshet.overlay" (list (set (omit $root.Values.environments "pools") "enabled" true) $pool) -}}
{{- end -}}

{{/* Names of the pools that are enabled, as a YAML list. One that is null has been removed by another values file. */}}
{{- define "freshet.environmentPools" -}}
{{- $names := list -}}
{{- range $name, $pool := .Values.environments.pools -}}
{{- if and (not (kindIs "invalid" $pool)) (fromYaml (include "freshet.environmentPool" (list $ $name))).enabled }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* The environments of a pool as the file of freshet.environment_server. Argument: the pool's configuration. */}}
{{- define "freshet.environmentFile" -}}
{{- toYaml .config -}}
{{- end -}}

{{/* The pod of a pool: list ROOT POOL CFG. */}}
{{- define "freshet.environmentPod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $cfg := index . 2 -}}
{{- $object := printf "%s-env-%s" (include "freshet.fullname" $root) $name -}}
metadata:
  labels:
    {{- include "freshet.selectorLabels" (list $root "environment") | nindent 4 }}
    app.kubernetes.io/part-of: freshet
    freshet.io/pool: {{ $name | quote }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: environment
    checksum/config: {{ include "freshet.environmentFile" $cfg | sha256sum }}
    {{- with $root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.podAnnotations }}
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
  {{- include "freshet.scheduling" (dict "root" $root "cfg" $cfg "component" "environment" "pool" $name) | nindent 2 }}
  containers:
    - name: environment
      image: {{ include "freshet.image" (list $root $cfg.image $root.Values.image.envPython) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- if $cfg.command }}
      command:
        {{- toYaml $cfg.command | nindent 8 }}
      {{- with $cfg.extraArgs }}
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- else }}
      command: [python3, -m, freshet.environment_server]
      args:
        - /etc/freshet/environments/environments.yaml
        - --listen={{ $root.Values.bindAddress }}:{{ include "freshet.port" "environment" }}
        - --http-listen={{ $root.Values.bindAddress }}:8081
        - --max-episodes={{ int $cfg.maxEpisodes }}
        - --drain-seconds={{ int $cfg.drainTimeoutSeconds }}
        {{- if include "freshet.tls" $root }}
        - --cert=/etc/freshet/tls/tls.crt
        - --key=/etc/freshet/tls/tls.key
        - --ca=/etc/freshet/tls/ca.crt
        {{- else }}
        - --insecure
        {{- end }}
        {{- range $cfg.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- end }}
      workingDir: {{ if $cfg.filesConfigMap }}/environments{{ else }}/tmp{{ end }}
      env:
        - {name: HOME, value: /tmp}
        {{- with $cfg.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: {{ include "freshet.port" "environment" }}}
        {{- if not $cfg.command }}
        - {name: env-http, containerPort: 8081}
        {{- end }}
      {{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
      {{ $probe }}Probe:
        {{- if $cfg.command }}
        tcpSocket: {port: grpc}
        {{- else }}
        httpGet: {path: {{ $path }}, port: env-http}
        {{- end }}
        {{- toYaml (get $cfg.probes $probe) | nindent 8 }}
      {{- end }}
      {{- if gt (int $cfg.preStopSleepSeconds) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ int $cfg.preStopSleepSeconds }}}
      {{- end }}
      resources:
        {{- toYaml $cfg.resources | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.containerSecurityContext | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if not $cfg.command }}
        - {name: config, mountPath: /etc/freshet/environments, readOnly: true}
        {{- end }}
        {{- if include "freshet.tls" $root }}
        - {name: tls, mountPath: /etc/freshet/tls, readOnly: true}
        {{- end }}
        {{- if $cfg.filesConfigMap }}
        - {name: files, mountPath: /environments, readOnly: true}
        {{- end }}
        {{- with $cfg.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $cfg.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - {name: tmp, emptyDir: {}}
    {{- if not $cfg.command }}
    - {name: config, configMap: {name: {{ $object }}}}
    {{- end }}
    {{- if include "freshet.tls" $root }}
    {{- include "freshet.tlsVolume" (list $root (printf "env-%s" $name)) | nindent 4 }}
    {{- end }}
    {{- with $cfg.filesConfigMap }}
    - {name: files, configMap: {name: {{ . }}}}
    {{- end }}
    {{- with $cfg.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Checks of the pools. */}}
{{- define "freshet.validateEnvironments" -}}
{{- range $name := fromYamlArray (include "freshet.environmentPools" .) -}}
{{- $where := printf "environments.pools.%s" $name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$" $name) -}}
{{- fail (printf "%s: a pool's name has at most 20 lower-case letters, digits and dashes, and begins and ends with a letter or digit" $where) -}}
{{- end -}}
{{- $cfg := fromYaml (include "freshet.environmentPool" (list $ $name)) -}}
{{- include "freshet.validateGrace" (list $where $cfg) -}}
{{- if and $cfg.command $cfg.config -}}
{{- fail (printf "%s.command and %s.config are both set: another program has no such file; remove one of them" $where $where) -}}
{{- end -}}
{{- if not (or $cfg.command $cfg.config) -}}
{{- fail (printf "%s.config is empty: the pool would serve nothing; set it to {NAME: {gymnasium, openenv, mcp or python: ...}}" $where) -}}
{{- end -}}
{{- include "freshet.validateMetricScaling" (list $where $cfg) -}}
{{- if ne $cfg.autoscaling.kind "none" -}}
{{- if $cfg.command -}}
{{- fail (printf "%s.autoscaling.kind is %s with %s.command: the number follows freshet_episodes_open, which another program does not serve; set autoscaling.kind=none" $where $cfg.autoscaling.kind $where) -}}
{{- end -}}
{{- if gt (mul 10 (int $cfg.autoscaling.targetOpenEpisodes)) (mul 9 (int $cfg.maxEpisodes)) -}}
{{- fail (printf "%s.autoscaling.targetOpenEpisodes is %d, above 90 %% of maxEpisodes, %d: a pool of full servers would not grow; lower it" $where (int $cfg.autoscaling.targetOpenEpisodes) (int $cfg.maxEpisodes)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
