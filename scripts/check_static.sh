#!/usr/bin/env bash
# Whether a program needs no other file: it names no library and no loader, and in a root that holds nothing but it and a model it
# has the logits of another build. As root, or where users may have namespaces of their own.
#
#   scripts/check_static.sh PROGRAM OTHER_BUILD [EMULATOR OPTION...]     the emulator is a static program, too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PROGRAM="$1" OTHER="$2" MODEL=models/fable-3m-q4_k_m.gguf
shift 2
fail() {
  printf 'check_static: %s\n' "$*" >&2
  exit 1
}
if readelf -ld "$PROGRAM" | grep -E "INTERP|NEEDED"; then fail "$PROGRAM needs what is said above"; fi

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
cp "$PROGRAM" "$root/llmrun"
cp "$MODEL" "$root/model.gguf"
run=(/llmrun)
if [ $# -gt 0 ]; then
  cp "$1" "$root/emulator"
  run=(/emulator "${@:2}" /llmrun)
fi
enter=(chroot)
[ "$(id -u)" -eq 0 ] || enter=(unshare -r chroot)
options=(-p "Once upon a time" -n 32 --temp 0 -q --logits-hash)
here="$("$OTHER" "$MODEL" "${options[@]}" 2>&1)"
alone="$("${enter[@]}" "$root" "${run[@]}" /model.gguf "${options[@]}" 2>&1)" || fail "failed in an empty root: $alone"
[ "$alone" = "$here" ] || fail "in an empty root: $alone, need: $here"
du -h "$PROGRAM" | cut -f1 | sed "s|\$|, no library, alone in a root: ${here##*$'\n'}|"
