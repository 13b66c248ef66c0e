#!/usr/bin/env bash
# Runs the inference server that a rollout asks for in a folder that both share (--engine-dir).
#
# usage: supervise.sh FOLDER PORT [more flags of the server]
#        supervise.sh --probe FOLDER PORT     exits with 0 if no server is asked for, or it is healthy
#   ENGINE  vllm (default) or sglang
#   VLLM    the program of vLLM (default: vllm)
#   PYTHON  the program that runs SGLang (default: python3)
#
# FOLDER/serve names the model to serve, FOLDER/NAME/ has it. The server is started when the name
# appears, started again when it ends, and replaced when the name changes. It listens on loopback,
# because its routes for weights have no authentication.
set -u
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
wanted() { head -n 1 "$folder/serve" 2>/dev/null; }
healthy() {
  local status
  exec 3<>"/dev/tcp/127.0.0.1/$port" &&
    printf 'GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3 &&
    read -r -t 30 _ status _ <&3 && [ "$status" = 200 ]
} 2>/dev/null

if [ "${1-}" = --probe ]; then
  [ $# -eq 3 ] || usage
  folder=$2 port=$3
  [ -z "$(wanted)" ] || healthy
  exit
fi

[ $# -ge 2 ] || usage
folder=$1 port=$2 engine=${ENGINE:-vllm}; shift 2
export VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
readonly GRACE_S=10
case $engine in
  vllm) program=("${VLLM:-vllm}" serve)
        set -- "$@" --generation-config vllm --enable-scale-out --logprobs-mode processed_logprobs ;;
  sglang) program=("${PYTHON:-python3}" -m sglang.launch_server --model-path)
          set -- "$@" --incremental-streaming-output ;;
  *) echo "supervise.sh: ENGINE is $engine, want vllm or sglang" >&2; exit 2 ;;
esac
server=

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
    # The last of repeated flags counts, so those that Freshet needs come last.
    setsid "${program[@]}" "$folder/$name" "$@" --served-model-name "$name" \
      --host 127.0.0.1 --port "$port" --dtype bfloat16 --skip-tokenizer-init &
    server=$!
  fi
  sleep 1 & wait $!
done
