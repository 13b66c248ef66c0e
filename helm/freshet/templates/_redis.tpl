{{- define "freshet.redisConf" -}}
{{- $tls := include "freshet.tls" . -}}
{{- with .Values.redis.extraConfig }}
{{- . | trim }}
{{ end -}}
dir /data
bind * -::*
{{- if $tls }}
port 0
tls-port 6379
tls-auth-clients yes
tls-protocols "TLSv1.2 TLSv1.3"
tls-cert-file /etc/freshet/tls/tls.crt
tls-key-file /etc/freshet/tls/tls.key
tls-ca-cert-file /etc/freshet/tls/ca.crt
{{- else }}
port 6379
{{- end }}
# For redis-cli in the pod.
unixsocket /run/redis/redis.sock
unixsocketperm 700
aclfile /etc/freshet/redis-acl/users.acl
protected-mode no
maxmemory {{ .Values.redis.maxMemory }}
# These settings make acknowledged samples survive kill -9.
maxmemory-policy noeviction
appendonly yes
appendfsync always
save ""
maxclients 10000
{{- end -}}

{{/* users.acl: dict root, passwords (by user). "default" may do everything, the roles what redis-roles.acl allows. */}}
{{- define "freshet.redisAcl" -}}
user default reset on #{{ sha256sum .passwords.default }} ~* &* +@all
{{- range .root.Files.Lines "redis-roles.acl" }}
{{- if and . (not (hasPrefix "#" .)) }}
{{- $words := regexSplit " " . 2 }}
user {{ first $words }} reset on #{{ sha256sum (get $.passwords (first $words)) }} {{ last $words }}
{{- end }}
{{- end }}
{{ end -}}

{{/* The default user's password for redis-cli. */}}
{{- define "freshet.redisCliAuth" -}}
- name: REDISCLI_AUTH
  valueFrom:
    secretKeyRef: {name: {{ include "freshet.redisSecret" . }}, key: {{ include "freshet.redisSecretKey" . }}}
{{- end -}}
