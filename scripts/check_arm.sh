#!/usr/bin/env bash
# Runs the cross build for AArch64, emulated by qemu-user: floating-point mode and kernels equal the definition, and the
# logits are those of the CPU at hand. On an emulated CPU without dot products, NEON is refused and the baseline does the same.
#
#   scripts/check_arm.sh [ARM_BIN_DIR [BIN_DIR [ARM_ROOT]]]     (default: build/arm/bin build/release/bin build/arm-root)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly ARM_BIN="${1:-build/arm/bin}" BIN="${2:-build/release/bin}" ROOT="${3:-build/arm-root}"
readonly SHAPES=(qwen3.5-mtp-small gemma4-small gemma4moe-small)  # operators that the embedded model lacks
MODELS=(models/fable-3m-f16.gguf models/fable-3m-q4_k_m.gguf)

fail() {
  printf 'check_arm: %s\n' "$*" >&2
  exit 1
}
emulated() { qemu-aarch64 -L "$ROOT" -cpu "$@"; }
hashes() { "$@" -p "Once upon a time" -n 32 --temp 0 -q --logits-hash 2>&1 >/dev/null; }
out="$(mktemp)"
trap 'rm -f "$out"' EXIT

passes() { emulated max "$ARM_BIN/$1" "${@:2}" >"$out" 2>&1 || fail "$1 failed: $(tail -n 30 "$out")"; }
# qemu-user applies no limit to addresses (linux-user/syscall.c, TARGET_NR_setrlimit), so all threads can be started.
passes base_tests "~threads that cannot be started*"
passes self_check_test "every kernel entry*"
passes kernels_test
for isa in scalar neon; do
  if grep -q "skipped: $isa " "$out"; then fail "kernels_test skipped $isa"; fi
done
grep -q "skipped: avx2 needs" "$out" || fail "kernels_test does not report avx2 as skipped"

for shape in "${SHAPES[@]}"; do
  MODELS+=("build/arm-$shape.gguf")
  "$BIN/llmsynth" --shape "$shape" --type Q8_0 -q "${MODELS[-1]}" || fail "llmsynth failed"
done
for model in "${MODELS[@]}"; do
  here="$(hashes "$BIN/llmrun" "$model")" || fail "llmrun failed here: $here"
  [[ "$here" == *"logits-sha256: "* ]] || fail "found no logits hash in: $here"
  for isa in scalar neon; do
    arm="$(hashes emulated max "$ARM_BIN/llmrun" "$model" --isa "$isa")" || fail "llmrun --isa $isa failed: $arm"
    [ "$arm" = "$here" ] || fail "$model, --isa $isa: $arm, here: $here"
  done
done

# A Cortex-A53 has no dot products.
code=0
emulated cortex-a53 "$ARM_BIN/llmrun" "${MODELS[0]}" -p a -n 1 --isa neon >"$out" 2>&1 || code=$?
[ "$code" -eq 6 ] || fail "llmrun --isa neon on a Cortex-A53: exit code $code, need 6: $(cat "$out")"
grep -q -- "--isa: neon needs AArch64" "$out" || fail "llmrun --isa neon does not say why: $(cat "$out")"
old="$(hashes emulated cortex-a53 "$ARM_BIN/llmrun" "${MODELS[-1]}")" || fail "llmrun failed on a Cortex-A53: $old"
[ "$old" = "$here" ] || fail "on a Cortex-A53: $old, here: $here"
echo "AArch64 gives the logits of $(uname -m): ${here##*$'\n'}"
