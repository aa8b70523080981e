#!/usr/bin/env bash
# Runs the release build as on the first x86-64 CPU (2003: no SSE4, no AVX), emulated by qemu-user, which raises SIGILL
# for every instruction that such a CPU lacks. The baseline must start, refuse the other instruction sets by name, equal
# the definition and give the logits of the CPU at hand.
#
#   scripts/check_old_cpu.sh [BIN_DIR]        (default: build/release/bin)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BIN="${1:-build/release/bin}"
readonly CPU=Opteron_G1
readonly RUN=("$BIN/llmrun" models/fable-3m-f16.gguf -p "Once upon a time" -n 4 --temp 0 -q)

fail() {
  printf 'check_old_cpu: %s\n' "$*" >&2
  exit 1
}
emulated() { qemu-x86_64 -cpu "$CPU" "$@"; }

if [ "$(uname -m)" != x86_64 ]; then
  echo "check_old_cpu: skipped, this is no x86-64 machine"
  exit 0
fi
out="$(mktemp)"
trap 'rm -f "$out"' EXIT

ISAS=(avx2 avx512 avxvnni avx512vnni amx)
native="$("${RUN[@]}" --logits-hash 2>&1 >/dev/null)" || fail "llmrun failed natively: $native"
old="$(emulated "${RUN[@]}" --logits-hash 2>&1 >/dev/null)" || fail "llmrun failed on $CPU: $old"
[[ "$native" == *"logits-sha256: "* ]] || fail "found no logits hash in: $native"
[ "$native" = "$old" ] || fail "on $CPU: $old, here: $native"

for isa in "${ISAS[@]}"; do
  code=0
  emulated "${RUN[@]}" --isa "$isa" >"$out" 2>&1 || code=$?
  [ "$code" -eq 6 ] || fail "llmrun --isa $isa on $CPU: exit code $code, need 6: $(cat "$out")"
  grep -q -- "--isa: $isa needs AVX" "$out" || fail "llmrun --isa $isa does not say why: $(cat "$out")"
done

emulated "$BIN/kernels_test" "~[large]" >"$out" 2>&1 || fail "kernels_test failed on $CPU: $(tail -n 30 "$out")"
for isa in "${ISAS[@]}"; do
  grep -q "skipped: $isa needs" "$out" || fail "kernels_test on $CPU does not report $isa as skipped"
done
if grep -q "skipped: scalar" "$out"; then fail "kernels_test on $CPU skipped the baseline"; fi
echo "the baseline runs on $CPU: ${native##*$'\n'}"
