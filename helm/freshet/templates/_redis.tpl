{{- define "freshet.redisConf" -}}
{{- $tls := include "freshet.tls" . -}}
{{- with .Values.redis.extraConfig }}
{{- . | trim }}
{{ end -}}
dir /data
{{- if $tls }}
port 6390
bind 127.0.0.1
{{- else }}
port 6379
bind * -::*
{{- end }}
protected-mode no
maxmemory {{ .Values.redis.maxMemory }}
# An acknowledged sample survives kill -9 only so.
maxmemory-policy noeviction
appendonly yes
appendfsync always
save ""
maxclients 10000
{{- end -}}
