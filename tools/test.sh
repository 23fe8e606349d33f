#!/usr/bin/env bash
# Builds everything, runs the tests, closes with 'N passed, N failed, N skipped'.
#
# Usage: tools/test.sh [--output-root=DIR] [--counts=FILE] [Bazel's options and targets]
#   --output-root=DIR  Bazel keeps its server and outputs in DIR
#   --counts=FILE      the three numbers go to FILE as well
# Without a target it takes //... . Examples: tools/test.sh --config=asan
#   tools/test.sh //tests:layout_test --test_output=all
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

startup=()
counts=()
options=()
targets=()
for argument in "$@"; do
  case $argument in
    --output-root=*)
      startup=(--nohome_rc --output_user_root="${argument#*=}" --max_idle_secs=60)
      ;;
    --counts=*) counts=("$argument") ;;
    -//*) targets+=("$argument") ;; # all but this one
    -*) options+=("$argument") ;;
    *) targets+=("$argument") ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(//...)
[ -t 2 ] || options=(--noshow_progress --color=no --curses=no "${options[@]}")

tools/setup.sh

events=$(mktemp "${TMPDIR:-/tmp}/moeplan-events.XXXXXX")
trap 'rm -f "$events"' EXIT

status=0
/usr/bin/bazel "${startup[@]}" test --keep_going "${options[@]}" \
  --build_event_json_file="$events" -- "${targets[@]}" || status=$?
/usr/bin/python3 tools/ci/summary.py --status="$status" "${counts[@]}" "$events" || {
  counted=$?
  [ "$status" -ne 0 ] || status=$counted
}
exit "$status"
