#!/bin/bash
# Every file of tests/results/ is about the code beside it, or says in words why
# there is no newer run. Runs at the root of the sources.
# Usage: results_test.sh
set -euo pipefail
shopt -s nullglob
now=$(tests/source_hash.sh)
failed=0
fail() {
  echo "results_test: $1"
  failed=1
}

# check FILE HASH: the rule, for one file.
check() {
  local sources stale
  sources=$(sed -n 's/^sources *\([0-9a-f]\{64\}\)$/\1/p' "$1")
  stale=$(sed -n 's/^stale: *//p' "$1")
  [[ -n $sources ]] || { echo "has no line 'sources HASH'"; return 1; }
  [[ $sources != "$2" ]] || return 0
  [[ $(wc -w <<<"$stale") -ge 5 ]] ||
    { echo "is about $sources, not $2, and no line 'stale: WHY' says why"; return 1; }
}

files=(tests/results/*.txt)
[[ ${#files[@]} -gt 0 ]] || fail "no files in tests/results/"
for file in "${files[@]}"; do
  why=$(check "$file" "$now") || fail "$file $why"
done

# The rule itself.
old=$(printf '0%.0s' {1..64})
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expect() { # expect refused|accepted TEXT
  printf '%b' "$2" >"$work/file"
  verdict=accepted
  check "$work/file" "$now" >/dev/null || verdict=refused
  [[ $verdict == "$1" ]] || fail "'$2' was $verdict"
}
expect refused 'total 1 passed\n'
expect refused "sources $old\n"
expect refused "sources $old\nstale: no machine\n"
expect accepted "sources $old\nstale: the machine was not lent that day\n"
expect accepted "sources $now\n"
exit "$failed"
