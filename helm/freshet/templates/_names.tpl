{{/* Names and labels. */}}

{{- define "freshet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 32 | trimSuffix "-" -}}
{{- end -}}

{{/*
Prefix of every name: at most 32 characters, which leaves room for "-rollout-POOL" and Kubernetes' suffixes. Longer names
are cut and end in a hash of the full name.
*/}}
{{- define "freshet.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- if .Values.fullnameOverride }}{{ $full = .Values.fullnameOverride }}{{ end -}}
{{- if gt (len $full) 32 -}}
{{- $full = printf "%s-%s" ($full | trunc 23 | trimSuffix "-") ($full | sha256sum | trunc 8) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{- define "freshet.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "freshet.namespace" -}}
{{- .Release.Namespace -}}
{{- end -}}

{{/* Labels that select the pods of this release: list ROOT COMPONENT; COMPONENT "" selects all of them. */}}
{{- define "freshet.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "freshet.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of an object: list ROOT COMPONENT. */}}
{{- define "freshet.labels" -}}
{{- $root := index . 0 -}}
{{- include "freshet.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: freshet
helm.sh/chart: {{ include "freshet.chart" $root }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object: dict root, name, component, optional: labels, annotations. */}}
{{- define "freshet.metadata" -}}
{{- $root := .root -}}
name: {{ .name }}
namespace: {{ include "freshet.namespace" $root | quote }}
labels:
  {{- include "freshet.labels" (list $root .component) | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := dict -}}
{{- range $key, $value := $root.Values.commonAnnotations }}{{ $_ := set $annotations $key $value }}{{ end -}}
{{- range $key, $value := .annotations }}{{ $_ := set $annotations $key $value }}{{ end -}}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "freshet.serviceAccountName" -}}
{{- default (include "freshet.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "freshet.controllerServiceAccountName" -}}
{{- default (printf "%s-controller" (include "freshet.fullname" .)) .Values.serviceAccount.controllerName -}}
{{- end -}}

{{/*
An image: list ROOT IMAGE DEFAULT. Keys of the role's IMAGE override DEFAULT. The digest of DEFAULT is ignored if the role
sets another repository or tag.
*/}}
{{- define "freshet.image" -}}
{{- $root := index . 0 -}}
{{- $own := default dict (index . 1) -}}
{{- $base := index . 2 -}}
{{- $registry := default $root.Values.image.registry $own.registry -}}
{{- $repository := default $base.repository $own.repository -}}
{{- $tag := coalesce $own.tag $root.Values.image.tag $root.Chart.AppVersion -}}
{{- $digest := $own.digest -}}
{{- if not (or $own.repository $own.tag $digest) }}{{ $digest = $base.digest }}{{ end -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $repository }}:{{ $tag }}{{ with $digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The name of a role in its certificate and in policies: list ROOT ROLE. */}}
{{- define "freshet.peerName" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s.%s.svc" (include "freshet.fullname" $root) (index . 1) (include "freshet.namespace" $root) -}}
{{- end -}}

{{/* The secret with a role's certificate: list ROOT ROLE. */}}
{{- define "freshet.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- if eq $root.Values.tls.mode "existingSecrets" -}}
{{- get $root.Values.tls.existingSecrets $role -}}
{{- else -}}
{{- printf "%s-tls-%s" (include "freshet.fullname" $root) $role -}}
{{- end -}}
{{- end -}}

{{/* "true" if members use TLS. */}}
{{- define "freshet.tls" -}}
{{- if ne .Values.tls.mode "disabled" }}true{{ end -}}
{{- end -}}

{{/* "true" if Redis is accessed with TLS. */}}
{{- define "freshet.redisTls" -}}
{{- if .Values.redis.enabled -}}
{{- include "freshet.tls" . -}}
{{- else if .Values.redis.external.tls.enabled -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if any pool uses KEDA. */}}
{{- define "freshet.keda" -}}
{{- $root := . -}}
{{- range $name, $pool := .Values.rollout.pools -}}
{{- $cfg := fromYaml (include "freshet.pool" (list $root $name)) -}}
{{- if and $cfg.enabled (eq $cfg.autoscaling.kind "keda") }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Deep-merges OVER into BASE; a null deletes the key: list BASE OVER. */}}
{{- define "freshet.overlay" -}}
{{- $base := index . 0 -}}
{{- $over := index . 1 -}}
{{- $out := dict -}}
{{- range $key, $value := $base -}}
{{- if not (hasKey $over $key) }}{{ $_ := set $out $key $value }}{{ end -}}
{{- end -}}
{{- range $key, $value := $over -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
{{- $_ := set $out $key (fromYaml (include "freshet.overlay" (list (get $base $key) $value))) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{/* Configuration of a pool: the keys of `rollout`, overridden by those of the pool: list ROOT POOL. */}}
{{- define "freshet.pool" -}}
{{- $root := index . 0 -}}
{{- $pool := default dict (get $root.Values.rollout.pools (index . 1)) -}}
{{- include "freshet.overlay" (list (set (omit $root.Values.rollout "pools") "enabled" true) $pool) -}}
{{- end -}}

{{/* API version of a pool's workload. Argument: the pool's configuration. */}}
{{- define "freshet.poolApi" -}}
{{- if eq .kind "LeaderWorkerSet" }}leaderworkerset.x-k8s.io/v1{{ else }}apps/v1{{ end -}}
{{- end -}}

{{/*
spec.replicas: dict root, api, kind, name, replicas, scaled. Keeps the live number unless the value has changed since. If an
autoscaler decides (scaled), keeps the live number or sets none: removing it from the manifest would reset it to 1.
*/}}
{{- define "freshet.replicas" -}}
{{- $live := lookup .api .kind (include "freshet.namespace" .root) .name -}}
{{- $wanted := ternary "" (int .replicas) .scaled -}}
{{- if and $live .scaled -}}
{{- if hasKey $live.spec "replicas" }}{{ $wanted = int $live.spec.replicas }}{{ end -}}
{{- else if $live -}}
{{- $annotations := default dict $live.metadata.annotations -}}
{{- if and (eq (toString (get $annotations "freshet.io/replicas")) (toString $wanted)) (hasKey $live.spec "replicas") -}}
{{- $wanted = int $live.spec.replicas -}}
{{- end -}}
{{- end -}}
{{- $wanted -}}
{{- end -}}
