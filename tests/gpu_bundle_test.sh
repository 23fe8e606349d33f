#!/bin/bash
# The bundle for a GPU machine without Bazel: what it holds, how large it is, and
# that its programs need the C library and the driver only.
# Usage: gpu_bundle_test.sh BUNDLE
set -euo pipefail
bundle=$1 failed=0
fail() {
  echo "gpu_bundle_test: $1"
  failed=1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bytes=$(stat -L -c %s "$bundle")
[[ $bytes -lt 30000000 ]] || fail "$bytes bytes, must be below 30 MB"
tar -xJf "$bundle" -C "$work"
for name in gpu_run.sh moeplan sources.txt routed_gpu_test golden_gpu_test \
  cases/glm53_tiny.safetensors tests/golden/cases; do
  [[ -e $work/gpu/$name ]] || fail "$name is missing"
done
expected=$(tests/source_hash.sh)
[[ $(cat "$work/gpu/sources.txt") == "$expected" ]] || fail "sources.txt is not the hash"
for program in "$work"/gpu/*_gpu_test "$work/gpu/moeplan"; do
  needed=$(ldd "$program" | grep -vE \
    'linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so' || true)
  [[ -z $needed ]] || fail "${program##*/} needs $needed"
done
# Without a GPU every test of it is skipped and nothing fails.
(cd "$work" && OUT=$work ./gpu/gpu_run.sh >"$work/summary" 2>&1) ||
  { cat "$work/summary"; fail "gpu_run.sh failed"; }
grep -q "^sources $expected" "$work/summary" || fail "no line 'sources' in the summary"
exit "$failed"
