#!/usr/bin/env bash
# Stands for llmcheck, llmgguf and llmbench where the job around them is tested: same options, reports and exit codes.
# A file `fault-CHECK` beside it makes that check end with the exit code in it; `pause` holds a number of seconds.
folder="$(dirname "$0")" report="" check="" model="$1"
[ -e "$folder/pause" ] && sleep "$(<"$folder/pause")"
case "$(basename "$0")" in
  llmgguf)
    read -r sha _ < <(sha256sum "$2")
    [ "$1" = hash ] && echo "{\"sha256\": \"$sha\", \"root\": \"$sha\"}"
    [ -e "$folder/fault-$1" ] && exit "$(<"$folder/fault-$1")"
    exit 0
    ;;
  llmbench)
    echo '[{"test": "load"}, {"test": "pp64", "tokens_per_s": {"median": 100.5}}]'
    exit 0
    ;;
esac
figures='[]'
while [ $# -gt 0 ]; do
  case "$1" in
    --report) report="$2" ;;
    --self | --verify | --layer-diff | --quality) check="${1#--}" ;;
    --ppl) check=ppl figures='[{"name": "perplexity", "rows": [{"perplexity": 1.25}]}]' ;;
    --kld) check=kld figures='[{"name": "kld", "rows": [{"mean": 0.5, "p99": 2.0, "same top %": 98.0}]}]' ;;
  esac
  shift
done
code=0 verdict=PASS
[ -e "$folder/fault-$check" ] && code="$(<"$folder/fault-$check")" verdict=FAIL
[ "$code" = SEGV ] && kill -SEGV $$
word="\"$verdict\""
case "$check" in ppl | kld) word=null ;; esac
echo "{\"verdict\": $word, \"checks\": [{\"name\": \"$check\", \"verdict\": \"$verdict\", \"detail\": \"as asked\"}], \"figures\": $figures}" >"$report"
[ "$code" = 0 ] || echo "llmcheck: error: $model: as asked" >&2
exit "$code"
