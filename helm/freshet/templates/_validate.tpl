{{/* Checks that the schema cannot express. Every message names the key and the fix. */}}
{{- define "freshet.validate" -}}
{{- include "freshet.validateName" . -}}
{{- include "freshet.validateRedis" . -}}
{{- include "freshet.validateTls" . -}}
{{- include "freshet.validatePools" . -}}
{{- include "freshet.validateRoles" . -}}
{{- include "freshet.validateEnvironments" . -}}
{{- include "freshet.validateModels" . -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled and metrics.serviceMonitor.enabled are both true: every pod would be scraped twice; set one of them to false" -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validateName" -}}
{{- $name := include "freshet.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "the prefix of all names is %q, from release %q: services need lower-case letters, digits and dashes, a letter first and no dash last; set fullnameOverride to such a name" $name .Release.Name) -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validateRedis" -}}
{{- $redis := .Values.redis -}}
{{- if and $redis.enabled $redis.external.host -}}
{{- fail (printf "redis.enabled is true and redis.external.host is %q: a cluster has one Redis; set redis.enabled=false, or leave redis.external.host empty" $redis.external.host) -}}
{{- end -}}
{{- if and (not $redis.enabled) (not $redis.external.host) -}}
{{- fail "redis.enabled is false and redis.external.host is empty: the cluster has no Redis; set redis.external.host, or redis.enabled=true" -}}
{{- end -}}
{{- if and $redis.auth.password $redis.auth.existingSecret -}}
{{- fail "redis.auth.password and redis.auth.existingSecret are both set: leave one of them empty" -}}
{{- end -}}
{{- if and $redis.auth.password (lt (len $redis.auth.password) 16) -}}
{{- fail "redis.auth.password is shorter than 16 characters: every certificate of the cluster may try passwords; use a longer one" -}}
{{- end -}}
{{- if and (not $redis.enabled) $redis.external.users (not $redis.external.existingSecret) -}}
{{- fail "redis.external.users is true without passwords: set redis.external.existingSecret to a secret with the keys controller, rollout, reward and trainer" -}}
{{- end -}}
{{- if contains "\n" (default "" $redis.auth.password) -}}
{{- fail "redis.auth.password has more than one line: Redis would use all of it, its clients only the first line; write it without a line end" -}}
{{- end -}}
{{- if and $redis.enabled $redis.auth.existingSecret -}}
{{- $secret := lookup "v1" "Secret" (include "freshet.namespace" .) $redis.auth.existingSecret -}}
{{- $key := $redis.auth.existingSecretPasswordKey -}}
{{- if $secret -}}
{{- range $needed := list $key "controller" "rollout" "reward" "trainer" "users.acl" -}}
{{- if not (hasKey (default dict $secret.data) $needed) -}}
{{- fail (printf "redis.auth.existingSecret: the secret %s has no key %s: add it (docs/security.md)" $redis.auth.existingSecret $needed) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if contains "\n" (default "" (get (default dict $secret.data) (toString $key)) | b64dec) -}}
{{- fail (printf "redis.auth.existingSecret: key %s of the secret %s has a line end: Redis would use it as part of the password, its clients would not; write the password without a line end (printf %%s, not echo)" $key $redis.auth.existingSecret) -}}
{{- end -}}
{{- end -}}
{{- if and (not $redis.enabled) (not $redis.external.tls.enabled) (not .Values.insecure) -}}
{{- fail "redis.external.tls.enabled is false: samples and the password would be readable on the network; set redis.external.tls.enabled=true, or insecure=true" -}}
{{- end -}}
{{- if and $redis.external.tls.clientCertificate (not $redis.external.tls.existingSecret) -}}
{{- fail "redis.external.tls.clientCertificate is true without a secret: set redis.external.tls.existingSecret to one with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validateTls" -}}
{{- $tls := .Values.tls -}}
{{- if and (eq $tls.mode "disabled") (not .Values.insecure) -}}
{{- fail "tls.mode is disabled: calls would be readable, and every pod that reaches a service could make them; choose tls.mode generated, certManager or existingSecrets, or set insecure=true" -}}
{{- end -}}
{{- if and (eq $tls.mode "certManager") (not $tls.certManager.issuerRef.name) -}}
{{- fail "tls.mode is certManager without an issuer: set tls.certManager.issuerRef.name (and kind: Issuer or ClusterIssuer)" -}}
{{- end -}}
{{- if eq $tls.mode "existingSecrets" -}}
{{- range $identity := fromYamlArray (include "freshet.identities" .) -}}
{{- if not (get $tls.existingSecrets $identity.name) -}}
{{- fail (printf "tls.mode is existingSecrets without a secret for %s: set tls.existingSecrets.%s to one with tls.crt, tls.key and ca.crt, whose certificate has the DNS name %s" $identity.name $identity.name (include "freshet.peerName" (list $ $identity.name))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $tls.mode "generated" -}}
{{- if lt (int $tls.generated.caValidityDays) (int $tls.generated.validityDays) -}}
{{- fail (printf "tls.generated.caValidityDays is %d, below tls.generated.validityDays %d: certificates would outlive their CA; set tls.generated.caValidityDays to at least %d" (int $tls.generated.caValidityDays) (int $tls.generated.validityDays) (int $tls.generated.validityDays)) -}}
{{- end -}}
{{- if ge (int $tls.generated.renewBeforeDays) (int $tls.generated.validityDays) -}}
{{- fail (printf "tls.generated.renewBeforeDays is %d: it must be below tls.generated.validityDays, %d" (int $tls.generated.renewBeforeDays) (int $tls.generated.validityDays)) -}}
{{- end -}}
{{- range $name, $names := $tls.generated.extra -}}
{{- if or (has $name (list "controller" "rollout" "reward" "env" "trainer" "redis" "keda" "user" "sandbox")) (hasPrefix "env-" $name) (hasPrefix "model-" $name) -}}
{{- fail (printf "tls.generated.extra.%s: %s is a role or a pool of the chart; choose another name" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (ne $tls.mode "disabled") (not .Values.auth.existingSecret) -}}
{{- $users := 0 -}}
{{- range $name, $user := .Values.auth.users -}}
{{- if $user }}{{ $users = add1 $users }}{{ end -}}
{{- end -}}
{{- if eq (int $users) 0 -}}
{{- fail "auth.users is empty: nobody could submit a job; add auth.users.NAME.role=admin, or set auth.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tests.enabled (ne $tls.mode "disabled") -}}
{{- if not (include "freshet.testSecret" .) -}}
{{- fail "tests.enabled needs a token that can submit jobs: add a submitter or admin to auth.users without tokenSha256, set tests.tokenSecret, or tests.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validatePools" -}}
{{- $enabled := list -}}
{{- range $name, $pool := .Values.rollout.pools -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$" $name) -}}
{{- fail (printf "rollout.pools.%s: a pool's name has at most 20 lower-case letters, digits and dashes, and begins and ends with a letter or digit" $name) -}}
{{- end -}}
{{- $cfg := fromYaml (include "freshet.pool" (list $ $name)) -}}
{{- if $cfg.enabled -}}
{{- $enabled = append $enabled $name -}}
{{- include "freshet.validateGrace" (list (printf "rollout.pools.%s" $name) $cfg) -}}
{{- include "freshet.validateEngine" (list $ $name $cfg) -}}
{{- if ne $cfg.autoscaling.kind "none" -}}
{{- include "freshet.validateBounds" (list (printf "rollout.pools.%s" $name) $cfg.autoscaling) -}}
{{- end -}}
{{- $object := printf "%s-rollout-%s" (include "freshet.fullname" $) $name -}}
{{- if and (eq $cfg.kind "LeaderWorkerSet") (gt (len $object) 48) -}}
{{- fail (printf "rollout.pools.%s: the name of the LeaderWorkerSet %s has %d characters: the names derived from it must fit into a label of 63; set fullnameOverride, or name the pool, so that it has at most 48" $name $object (len $object)) -}}
{{- end -}}
{{- if and (ne $cfg.autoscaling.kind "none") (eq $cfg.kind "LeaderWorkerSet") (gt (int $cfg.leaderWorkerSet.size) 1) -}}
{{- fail (printf "rollout.pools.%s.autoscaling.kind is %s with leaderWorkerSet.size %d: an autoscaler computes a number of engines, but a LeaderWorkerSet scales in groups; set autoscaling.kind=none, or leaderWorkerSet.size=1" $name $cfg.autoscaling.kind (int $cfg.leaderWorkerSet.size)) -}}
{{- end -}}
{{- if and (eq $cfg.autoscaling.kind "keda") (lookup "autoscaling/v2" "HorizontalPodAutoscaler" (include "freshet.namespace" $) $object) -}}
{{- fail (printf "rollout.pools.%s.autoscaling.kind is keda, but the HorizontalPodAutoscaler %s still exists: KEDA refuses workloads that another one scales; run kubectl -n %s delete hpa %s, or upgrade with autoscaling.kind=none first" $name $object (include "freshet.namespace" $) $object) -}}
{{- end -}}
{{- if and (eq $cfg.autoscaling.kind "hpa") (lt (int $cfg.autoscaling.minReplicas) 1) -}}
{{- fail (printf "rollout.pools.%s.autoscaling.minReplicas is 0: an HPA cannot scale from 0; set it to 1, or autoscaling.kind=keda" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $enabled -}}
{{- fail "rollout.pools has no enabled pool: nothing would generate samples; set rollout.pools.default.enabled=true" -}}
{{- end -}}
{{- if and .Values.rollout.server.image.repository (not (include "freshet.servers" .)) -}}
{{- fail "rollout.server is set, but no enabled pool has a server: set engine to vllm or sglang, in rollout or in a pool, or remove rollout.server" -}}
{{- end -}}
{{- if and .Values.rollout.openai.enabled (not .Values.rollout.openai.tokenSecret) -}}
{{- fail "rollout.openai.enabled is true without a token: set rollout.openai.tokenSecret to a secret with the key token (kubectl create secret generic NAME --from-literal=token=$(openssl rand -hex 32))" -}}
{{- end -}}
{{- if and .Values.tests.enabled .Values.tests.pool (not (has .Values.tests.pool $enabled)) -}}
{{- fail (printf "tests.pool is %q, which is not an enabled pool: set it to one of %s, or leave it empty" .Values.tests.pool (join ", " $enabled)) -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validateRoles" -}}
{{- include "freshet.validateGrace" (list "controller" .Values.controller) -}}
{{- include "freshet.validateGrace" (list "trainer" .Values.trainer) -}}
{{- range $role := list "reward" "env" -}}
{{- $cfg := get $.Values $role -}}
{{- if $cfg.enabled -}}
{{- include "freshet.validateGrace" (list $role $cfg) -}}
{{- if $cfg.autoscaling.enabled -}}
{{- include "freshet.validateBounds" (list $role $cfg.autoscaling) -}}
{{- if lt (int $cfg.autoscaling.minReplicas) 1 -}}
{{- fail (printf "%s.autoscaling.minReplicas is 0: an HPA cannot scale from 0; set it to 1" $role) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $sandbox := .Values.reward.sandbox -}}
{{- $class := ternary $sandbox.pods.runtimeClassName .Values.reward.runtimeClassName $sandbox.pods.enabled -}}
{{- if and .Values.reward.enabled $sandbox.enabled (ne $sandbox.isolation "any") (regexMatch "gvisor|runsc" $class) -}}
{{- fail (printf "%s.runtimeClassName is %s: gVisor lacks seccomp's notifications, so the sandbox would not start with reward.sandbox.isolation %s; set that to any, or use another class, such as Kata's" (ternary "reward.sandbox.pods" "reward" $sandbox.pods.enabled) $class $sandbox.isolation) -}}
{{- end -}}
{{- if include "freshet.sandboxPods" . -}}
{{- if not (include "freshet.tls" .) -}}
{{- fail "reward.sandbox.pods.enabled is true without TLS: programs and verdicts would be readable and could be forged; choose another tls.mode, or set reward.sandbox.pods.enabled=false" -}}
{{- end -}}
{{- if .Values.reward.sandbox.pods.autoscaling.enabled -}}
{{- include "freshet.validateBounds" (list "reward.sandbox.pods" .Values.reward.sandbox.pods.autoscaling) -}}
{{- if lt (int .Values.reward.sandbox.pods.autoscaling.minReplicas) 1 -}}
{{- fail "reward.sandbox.pods.autoscaling.minReplicas is 0: an HPA cannot scale from 0; set it to 1" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $taken := dict "7072" "the reward worker's gRPC port" "8081" "its metrics port" "8083" "the sandbox's metrics port" "8084" "the Python rewards' metrics port" -}}
{{- range $name := list "python" "sandbox" -}}
{{- $part := get $.Values.reward $name -}}
{{- if $part.enabled -}}
{{- with get $taken (toString (int $part.port)) -}}
{{- fail (printf "reward.%s.port is %d, which is %s: set another one" $name (int $part.port) .) -}}
{{- end -}}
{{- $_ := set $taken (toString (int $part.port)) (printf "reward.%s.port, too" $name) -}}
{{- end -}}
{{- end -}}
{{- if lt (int .Values.controller.replicas) 1 -}}
{{- fail "controller.replicas is 0: the cluster would have no controller; set it to 1, or 2 for a standby" -}}
{{- end -}}
{{- with .Values.controller.datasets -}}
{{- if and .existingClaim .configMap -}}
{{- fail "controller.datasets.existingClaim and controller.datasets.configMap are both set: leave one of them empty" -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.trainer.ranks) 1) (gt (int .Values.trainer.gpu.count) 0) .Values.networkPolicy.enabled (not .Values.networkPolicy.nccl) -}}
{{- fail "trainer.ranks is above 1 with trainer.gpu.count above 0, but networkPolicy.nccl is false: ranks on GPUs exchange data by NCCL, which neither encrypts nor authenticates; set it to true to allow that" -}}
{{- end -}}
{{- end -}}

{{/* Checks that a drain can end before the pod is killed: list WHERE CFG. */}}
{{- define "freshet.validateGrace" -}}
{{- $where := index . 0 -}}
{{- $cfg := index . 1 -}}
{{- $needed := add (int $cfg.drainTimeoutSeconds) (int $cfg.preStopSleepSeconds) 5 -}}
{{- if lt (int $cfg.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d: pods would be killed while they drain; set it to at least %d (drainTimeoutSeconds + preStopSleepSeconds + 5)" $where (int $cfg.terminationGracePeriodSeconds) (int $needed)) -}}
{{- end -}}
{{- end -}}

{{- define "freshet.validateBounds" -}}
{{- $where := index . 0 -}}
{{- $scaling := index . 1 -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling.minReplicas is %d, above maxReplicas %d: swap them" $where (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}

{{/* Secret with the token of `helm test`: of the first user by name who may submit and whose token the chart generates. */}}
{{- define "freshet.testSecret" -}}
{{- $found := .Values.tests.tokenSecret -}}
{{- if not .Values.auth.existingSecret -}}
{{- range $name, $user := .Values.auth.users -}}
{{- if and $user (not $found) -}}
{{- if and (has $user.role (list "submitter" "admin")) (not $user.tokenSha256) -}}
{{- $found = printf "%s-user-%s" (include "freshet.fullname" $) $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}
