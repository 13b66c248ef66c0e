{{/* Common parts of pods. */}}

{{/* Port of a role's gRPC services. */}}
{{- define "freshet.port" -}}
{{- get (dict "controller" 7070 "rollout" 7071 "reward" 7072 "env" 7073 "trainer" 7074 "environment" 7081 "model" 8000) . -}}
{{- end -}}

{{/* Arguments of every program: dict root, role, cfg, optional: component. */}}
{{- define "freshet.commonArgs" -}}
{{- $root := .root -}}
- --name=$(POD_NAME)
- --listen={{ $root.Values.bindAddress }}:{{ include "freshet.port" .role }}
- --http-listen={{ $root.Values.bindAddress }}:8081
- --advertise=$(POD_IP)
- --drain-timeout-ms={{ mul (int .cfg.drainTimeoutSeconds) 1000 }}
{{- if include "freshet.tls" $root }}
- --tls-cert=/etc/freshet/tls/tls.crt
- --tls-key=/etc/freshet/tls/tls.key
- --tls-ca=/etc/freshet/tls/ca.crt
- --tls-peer-name={{ include "freshet.peerName" (list $root "{role}") }}
- --authz-policy=/etc/freshet/policy/policy.json
{{- else }}
- --insecure
{{- end }}
{{- if ne .role "controller" }}
- --controller={{ include "freshet.fullname" $root }}-controller.{{ include "freshet.namespace" $root }}.svc:7070
{{- end }}
{{- if ne .role "env" }}
{{- include "freshet.redisArgs" . }}
{{- end }}
{{- end -}}

{{/* Arguments of programs that use Redis: dict root, role. */}}
{{- define "freshet.redisArgs" -}}
{{- $root := .root -}}
{{- $external := $root.Values.redis.external }}
- --redis={{ include "freshet.redisTarget" $root }}
{{- if include "freshet.redisUsers" $root }}
- --redis-user={{ .role }}
{{- end }}
{{- if include "freshet.redisSecret" $root }}
- --redis-password-file=/etc/freshet/redis/password
{{- end }}
{{- if include "freshet.redisTls" $root }}
- --redis-tls
{{- if $root.Values.redis.enabled }}
- --redis-tls-name={{ include "freshet.peerName" (list $root "redis") }}
- --redis-tls-ca=/etc/freshet/tls/ca.crt
- --redis-tls-cert=/etc/freshet/tls/tls.crt
- --redis-tls-key=/etc/freshet/tls/tls.key
{{- else }}
{{- with $external.tls.serverName }}
- --redis-tls-name={{ . }}
{{- end }}
{{- if $external.tls.existingSecret }}
- --redis-tls-ca=/etc/freshet/redis-tls/ca.crt
{{- end }}
{{- if $external.tls.clientCertificate }}
- --redis-tls-cert=/etc/freshet/redis-tls/tls.crt
- --redis-tls-key=/etc/freshet/redis-tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* HOST:PORT of Redis in the network. */}}
{{- define "freshet.redisTarget" -}}
{{- if .Values.redis.enabled -}}
{{ include "freshet.fullname" . }}-redis.{{ include "freshet.namespace" . }}.svc:6379
{{- else -}}
{{ .Values.redis.external.host }}:{{ .Values.redis.external.port | int }}
{{- end -}}
{{- end -}}

{{/* "true" if each role has its own Redis user. */}}
{{- define "freshet.redisUsers" -}}
{{- if or .Values.redis.enabled .Values.redis.external.users }}true{{ end -}}
{{- end -}}

{{/* Secret with the passwords of Redis; empty if there is none. */}}
{{- define "freshet.redisSecret" -}}
{{- if .Values.redis.enabled -}}
{{- default (printf "%s-redis-auth" (include "freshet.fullname" .)) .Values.redis.auth.existingSecret -}}
{{- else -}}
{{- .Values.redis.external.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Key of the password of Redis' default user. */}}
{{- define "freshet.redisSecretKey" -}}
{{- if not .Values.redis.enabled -}}
{{- .Values.redis.external.existingSecretPasswordKey -}}
{{- else if .Values.redis.auth.existingSecret -}}
{{- .Values.redis.auth.existingSecretPasswordKey -}}
{{- else -}}
password
{{- end -}}
{{- end -}}

{{/* Changes with the passwords, to restart pods: they read passwords only at startup. */}}
{{- define "freshet.redisChecksum" -}}
{{- printf "%s/%s/%s/%s/%s" (include "freshet.redisSecret" .) (include "freshet.redisSecretKey" .) (include "freshet.redisUsers" .) .Values.redis.auth.password .Values.redis.auth.rotation | sha256sum -}}
{{- end -}}

{{/* Volume with a role's certificate: list ROOT ROLE. Must not be mounted with subPath, which would hide renewed files. */}}
{{- define "freshet.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "freshet.tlsSecret" . }}
    defaultMode: 0440
{{- end -}}

{{/* Scheduling of a pod: dict root, cfg, component, optional: pool. */}}
{{- define "freshet.scheduling" -}}
{{- $gpu := default dict .cfg.gpu -}}
{{- with .cfg.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := default list .cfg.tolerations -}}
{{- $gpus := int $gpu.count -}}
{{- if .cfg.server }}{{ $gpus = add $gpus (fromYaml (include "freshet.serverGpu" .cfg)).count }}{{ end -}}
{{- if gt (int $gpus) 0 }}
{{- $tolerations = append $tolerations (dict "key" $gpu.resourceName "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .cfg.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if .cfg.topologySpreadConstraints }}
  {{- toYaml .cfg.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "freshet.selectorLabels" (list .root .component) | nindent 8 }}
        {{- with .pool }}
        freshet.io/pool: {{ . | quote }}
        {{- end }}
  {{- end }}
{{- with .cfg.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .cfg.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .cfg.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- end -}}

{{/* Resources, with GPUs in both requests and limits. Argument: a role's configuration. */}}
{{- define "freshet.resources" -}}
{{- $resources := deepCopy (default dict .resources) -}}
{{- $gpu := default dict .gpu -}}
{{- if gt (int $gpu.count) 0 -}}
{{- $gpus := dict $gpu.resourceName (int $gpu.count) -}}
{{- $_ := set $resources "requests" (merge (deepCopy $gpus) (default dict $resources.requests)) -}}
{{- $_ := set $resources "limits" (merge (deepCopy $gpus) (default dict $resources.limits)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/*
Pod template of a member, metadata and spec: dict root, role, cfg, args (a list of lines), optional: component (default: the
role), pool, volumes, mounts, env, ports, annotations, initContainers.
*/}}
{{- define "freshet.podTemplate" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $component := default $role .component -}}
{{- $cfg := .cfg -}}
{{- $compute := or (eq $role "rollout") (eq $role "trainer") -}}
{{- $gpus := int (default dict $cfg.gpu).count -}}
{{- $base := $root.Values.image.control -}}
{{- if $compute }}{{ $base = ternary $root.Values.image.computeCuda $root.Values.image.compute (gt $gpus 0) }}{{ end -}}
{{- $redis := ne $role "env" -}}
{{- $redisTls := and $redis (not $root.Values.redis.enabled) (include "freshet.redisTls" $root) $root.Values.redis.external.tls.existingSecret -}}
{{- $api := and (eq $role "controller") $cfg.kubernetesScaler -}}
metadata:
  labels:
    {{- include "freshet.selectorLabels" (list $root $component) | nindent 4 }}
    app.kubernetes.io/part-of: freshet
    {{- with .pool }}
    freshet.io/pool: {{ . | quote }}
    {{- end }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ $role }}
    {{- if and $redis (include "freshet.redisSecret" $root) }}
    checksum/redis-auth: {{ include "freshet.redisChecksum" $root }}
    {{- end }}
    {{- with $root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ if eq $role "controller" }}{{ include "freshet.controllerServiceAccountName" $root }}{{ else }}{{ include "freshet.serviceAccountName" $root }}{{ end }}
  automountServiceAccountToken: {{ if $api }}true{{ else }}false{{ end }}
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
  {{- include "freshet.scheduling" (dict "root" $root "cfg" $cfg "component" $component "pool" .pool) | nindent 2 }}
  {{- with .initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ $role }}
      image: {{ include "freshet.image" (list $root $cfg.image $base) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [freshet-{{ $role }}]
      args:
        {{- include "freshet.commonArgs" . | nindent 8 }}
        {{- range .args }}
        - {{ . }}
        {{- end }}
        {{- range $cfg.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: HOME
          value: /tmp
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $cfg.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: {{ include "freshet.port" $role }}}
        - {name: http, containerPort: 8081}
        {{- with .ports }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml $cfg.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml $cfg.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml $cfg.probes.readiness | nindent 8 }}
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
        {{- if include "freshet.tls" $root }}
        - {name: tls, mountPath: /etc/freshet/tls, readOnly: true}
        - {name: policy, mountPath: /etc/freshet/policy, readOnly: true}
        {{- end }}
        {{- if and $redis (include "freshet.redisSecret" $root) }}
        - {name: redis-auth, mountPath: /etc/freshet/redis, readOnly: true}
        {{- end }}
        {{- if $redisTls }}
        - {name: redis-tls, mountPath: /etc/freshet/redis-tls, readOnly: true}
        {{- end }}
        {{- if (default dict $cfg.shm).sizeLimit }}
        - {name: dshm, mountPath: /dev/shm}
        {{- end }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $cfg.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $cfg.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if include "freshet.tls" $root }}
    {{- include "freshet.tlsVolume" (list $root $role) | nindent 4 }}
    - name: policy
      configMap:
        name: {{ include "freshet.fullname" $root }}-policies
        items: [{key: {{ $role }}.json, path: policy.json}]
    {{- end }}
    {{- if and $redis (include "freshet.redisSecret" $root) }}
    - name: redis-auth
      secret:
        secretName: {{ include "freshet.redisSecret" $root }}
        defaultMode: 0440
        items: [{key: {{ if include "freshet.redisUsers" $root }}{{ $role }}{{ else }}{{ include "freshet.redisSecretKey" $root }}{{ end }}, path: password}]
    {{- end }}
    {{- if $redisTls }}
    - name: redis-tls
      secret:
        secretName: {{ $root.Values.redis.external.tls.existingSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if (default dict $cfg.shm).sizeLimit }}
    - name: dshm
      emptyDir: {medium: Memory, sizeLimit: {{ $cfg.shm.sizeLimit }}}
    {{- end }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $cfg.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
