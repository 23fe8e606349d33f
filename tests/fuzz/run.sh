#!/usr/bin/env bash
# Builds every fuzz target and runs each for SECONDS over a copy of its corpus.
# Fails on a finding, which stays in tests/fuzz/findings/.
# Usage: tests/fuzz/run.sh SECONDS [bazel's start-up options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:?usage: tests/fuzz/run.sh SECONDS}
shift

work=$(mktemp -d "${TMPDIR:-/var/tmp}/moeplan-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0
for source in tests/fuzz/*_fuzz.cc; do
  target=$(basename "$source" .cc)
  # The links in .bazel/ stay those of the plain build.
  bazel "$@" build --config=fuzz --noshow_progress \
    --experimental_convenience_symlinks=ignore "//tests:$target"
  program=$(bazel "$@" info --config=fuzz --noshow_progress bazel-bin)/tests/$target
  findings=tests/fuzz/findings/$target
  mkdir -p "$work/$target" "$findings"
  # New inputs go to the copy; the checkout keeps its small corpus.
  if ! "$program" -max_total_time="$seconds" -max_len=16384 -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$findings/" "$work/$target" \
    "tests/fuzz/corpus/${target%_fuzz}" >"$work/log" 2>&1; then
    failed=1
    echo "$target: a finding in $findings"
    grep -v '^#' "$work/log" | head -60
  fi
  grep -E 'Done|number_of_executed|peak_rss' "$work/log" |
    sed "s/^/$target: /" || true
  rmdir --ignore-fail-on-non-empty "$findings" tests/fuzz/findings
done
exit "$failed"
