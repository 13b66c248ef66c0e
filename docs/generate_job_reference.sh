#!/usr/bin/env bash
# Writes docs/job.md: every key of a job file, as `freshet explain` describes it.
# usage: docs/generate_job_reference.sh [--check] [FRESHET]    (default: build/bin/freshet)
# --check changes nothing and exits 1 when the file is not current.
set -euo pipefail
check=false
if [ "${1:-}" = --check ]; then check=true; shift; fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly FRESHET="${1:-build/bin/freshet}"
out="$(mktemp)"
trap 'rm -f "$out"' EXIT

# The keys that `freshet explain` lists for a block ("" for the whole file).
keys_of() { "$FRESHET" explain ${1:+"$1"} | sed -n '/^  keys.*:$/,$p' | sed -n 's/^  \([a-z_0-9]*\)  *[^ ].*/\1/p'; }

# One table row for a key: its name relative to the section, type, default, values, meaning.
row() {
  "$FRESHET" explain "$1" | awk -v name="$2" '
    function trim(s) { gsub(/^ +| +$/, "", s); return s }
    function cell(s) { gsub(/\|/, "\\|", s); return s }
    function column(s) { return s == "" ? "" : " " s }
    NR == 1 { next }
    /^  keys/ { exit }
    /^  type: / { type = trim(substr($0, 9)); sub(/^list of an? /, "list of ", type); next }
    /^  default: / { value = trim(substr($0, 12)); next }
    /^  when absent: / { absent = trim(substr($0, 16)); next }
    /^  range: / { range = trim(substr($0, 10)); next }
    /^  one of: / { range = trim(substr($0, 11)); next }
    /^  applies with: / { applies = trim(substr($0, 17)); next }
    { text = text (text == "" ? "" : " ") trim($0) }
    END {
      if (value ~ /^none, /) value = "**required**"
      else if (value != "") value = "`" value "`"
      else if (absent != "") value = absent
      if (applies != "") {
        kind = applies; sub(/ .*/, "", kind); sub(/^[^ ]* /, "", applies)
        text = text " Only with `" kind ": " applies "`."
      }
      printf "| `%s` | %s |%s |%s | %s |\n", name, type, column(cell(value)), column(cell(range)), cell(text)
    }'
}

# What `freshet explain` cannot say about a section.
note() {
  case "$1" in
    loss) printf 'Meaning, sources and presets: [losses.md](losses.md).\n\n' ;;
    staleness) printf 'The rule and the dispositions: [staleness.md](staleness.md).\n\n' ;;
    weight_sync) printf '`freshet local` hands weights over in-process and takes `auto` or `inprocess`; a cluster takes the other values. `nccl` needs an NVIDIA GPU for every rank of the trainer and for every engine, and on Kubernetes the chart value `networkPolicy.nccl`; [what `cuda_ipc` needs](gpus.md#weights-on-a-shared-gpu); [what is not encrypted](security.md#what-is-not-defended).\n\n' ;;
    output) printf 'Files and their keys: [run-folder.md](run-folder.md).\n\n' ;;
  esac
}

# All rows of a block; blocks inside it follow in place.
rows() {
  local path="$1" prefix="$2" key inner
  for key in $(keys_of "$path"); do
    if [ "$("$FRESHET" explain "$path.$key" | sed -n 's/^  type: //p')" = "block of keys" ]; then
      row "$path.$key" "$prefix$key"
      rows "$path.$key" "$prefix$key."
    else
      row "$path.$key" "$prefix$key"
      inner="$("$FRESHET" explain "$path.$key" |
        awk '/^  type: / { entry = /list/ ? "N" : "NAME" } /^  keys of each entry:$/ { print entry }')"
      [ -z "$inner" ] || rows "$path.$key.$inner" "$prefix$key.$inner."
    fi
  done
}

table_head() { printf '| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n'; }

{
  printf '# Keys of a job file\n\n'
  printf '<!-- Written by docs/generate_job_reference.sh from the output of `freshet explain`; do not edit. -->\n\n'
  printf 'Which keys does a job file have? `freshet init` writes a commented file, `freshet validate JOB.yaml` prints the resolved\n'
  printf 'job or every error in it, `freshet explain KEY` explains one key, and `--set a.b=c` overrides a key. Unknown keys are\n'
  printf 'errors. NAME stands for a name of your own, N for an index from 0. A default in plain words says what holds when the key\n'
  printf 'is absent.\n\n'
  printf '## Top level\n\n'
  table_head
  blocks=()
  for key in $(keys_of ""); do
    row "$key" "$key"
    [ "$("$FRESHET" explain "$key" | sed -n 's/^  type: //p')" != "block of keys" ] || blocks+=("$key")
  done
  for block in "${blocks[@]}"; do
    printf '\n## %s\n\n' "$block"
    note "$block"
    table_head
    rows "$block" ""
  done
} >"$out"
if $check; then
  cmp -s "$out" docs/job.md && exit 0
  printf 'docs/job.md is not current; run docs/generate_job_reference.sh\n' >&2
  exit 1
fi
cat "$out" >docs/job.md
printf 'docs/job.md: %s keys\n' "$(grep -c '^| `' docs/job.md)" >&2
