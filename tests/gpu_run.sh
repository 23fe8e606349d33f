#!/usr/bin/env bash
# Runs every *_gpu_test binary beside this script, on a GPU machine without Bazel.
#
# Usage: [OUT=DIR] gpu_run.sh [GoogleTest's options]
# The folder is //tests:gpu_bundle unpacked: the binaries, cases/, tests/golden/, the
# hash of the code and this script. Each binary runs there and prints one line; its
# full log is ${OUT:-.}/NAME.log, the summary ${OUT:-.}/gpu_summary.txt.
# Exits 1 when a test failed, a binary crashed or there was none.
set -uo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${OUT:-.}"
out=$(cd "${OUT:-.}" && pwd)
cd "$folder" || exit 1
export MOEPLAN_CASES=${MOEPLAN_CASES:-$folder/cases}

# number_of WORDS FILE: the number in GoogleTest's line "[  WORDS ] n test".
number_of() {
  local number
  number=$(sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) tests\{0,1\}.*/\1/p" "$2" | tail -n 1)
  echo "${number:-0}"
}

total_passed=0 total_failed=0 total_skipped=0 binaries=0 bad=0
lines=()
for binary in "$folder"/*_gpu_test; do
  [ -f "$binary" ] || continue
  [ -x "$binary" ] || chmod +x "$binary"
  name=${binary##*/}
  log=$out/$name.log
  seconds=$SECONDS
  status=0
  "$binary" --gtest_color=no "$@" >"$log" 2>&1 || status=$?
  passed=$(number_of PASSED "$log")
  failed=$(number_of FAILED "$log")
  skipped=$(number_of SKIPPED "$log")
  verdict=ok
  if [ "$status" -ne 0 ]; then
    verdict="FAILED (exit $status)"
    bad=$((bad + 1))
  fi
  line=$(printf '%-28s %4d passed %4d failed %4d skipped %5d s  %s' "$name" \
    "$passed" "$failed" "$skipped" "$((SECONDS - seconds))" "$verdict")
  lines+=("$line")
  echo "$line"
  if [ "$status" -ne 0 ]; then
    grep -E -A 12 'Failure|Segmentation|terminate' "$log" | head -n 60
    tail -n 5 "$log"
  fi
  binaries=$((binaries + 1))
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
done

# The table of docs/numerics.md, by this GPU's kernels.
if [ -x ./moeplan ] && nvidia-smi -L >/dev/null 2>&1; then
  verdict=ok
  ./moeplan bench --numerics --device cuda:0 >"$out/numerics.txt" 2>&1 || {
    verdict="FAILED (exit $?)"
    bad=$((bad + 1))
    tail -n 5 "$out/numerics.txt"
  }
  lines+=("moeplan bench --numerics: $verdict")
fi

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
{
  echo "date    $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  echo "gpu     ${gpu:-none}"
  echo "system  $(nproc) processors"
  echo "sources $(cat sources.txt 2>/dev/null || echo unknown)"
  [ ${#lines[@]} -eq 0 ] || printf '%s\n' "${lines[@]}"
  echo "total   $total_passed passed, $total_failed failed, $total_skipped skipped;" \
    "$binaries binaries, $bad of them failed"
} | tee "$out/gpu_summary.txt"
[ "$binaries" -gt 0 ] && [ "$bad" -eq 0 ]
