#!/usr/bin/env bash
# Runs the vLLM server that a rollout asks for in a folder that both share (--engine-dir).
#
# usage: supervise.sh FOLDER PORT [more `vllm serve` flags]
#   VLLM  the program (default: vllm)
#
# FOLDER/serve names the model to serve, FOLDER/NAME/ has it. The server is started when the name
# appears, started again when it ends, and replaced when the name changes. It listens on loopback,
# because its routes for weights have no authentication.
set -u
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 port=$2; shift 2
export VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
readonly GRACE_S=10
server=

wanted() { head -n 1 "$folder/serve" 2>/dev/null; }
running() { [ -n "$server" ] && kill -0 "$server" 2>/dev/null; }
# Ends the server's whole session, because its workers may not notice the end of their parent.
stop_server() {
  running || return 0
  kill -TERM -- "-$server" 2>/dev/null
  for _ in $(seq $((GRACE_S * 5))); do running || break; sleep 0.2; done
  kill -KILL -- "-$server" 2>/dev/null
  wait "$server" 2>/dev/null
  server=
}
trap 'stop_server; exit 0' TERM INT

name=
while true; do
  now=$(wanted)
  if [ -n "$now" ] && { [ "$now" != "$name" ] || ! running; }; then
    if [ -n "$server" ]; then
      echo "supervise.sh: server $name is replaced or has ended" >&2
      kill -KILL -- "-$server" 2>/dev/null   # workers of one that has ended
      stop_server
    fi
    name=$now
    echo "supervise.sh: starting $name" >&2
    setsid "${VLLM:-vllm}" serve "$folder/$name" --served-model-name "$name" \
      --host 127.0.0.1 --port "$port" --dtype bfloat16 --skip-tokenizer-init \
      --generation-config vllm --enable-scale-out --logprobs-mode processed_logprobs "$@" &
    server=$!
  fi
  sleep 1 & wait $!
done
