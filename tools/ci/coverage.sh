#!/usr/bin/env bash
# Runs the host tests with gcc's line counters in lib/ and plans/, prints the share
# of lines run per file and in total, and fails below the limit of coverage.py.
# (`bazel coverage` needs a repository that Debian's Bazel would download.)
# Usage: tools/ci/coverage.sh [--output-root=DIR] [Bazel's options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

startup=()
for argument in "$@"; do
  case $argument in
    --output-root=*) startup=(--nohome_rc --output_user_root="${argument#*=}") ;;
  esac
done
counters=$(mktemp -d "${TMPDIR:-/var/tmp}/moeplan-coverage.XXXXXX")
trap 'rm -rf "$counters"' EXIT

# The archive's symbols and the sources' layout are no question for the counters.
status=0
tools/test.sh "$@" --config=coverage --test_tag_filters=-gpu --build_tests_only \
  --test_env=GCOV_PREFIX="$counters" --sandbox_writable_path="$counters" \
  --test_summary=short //... -//tests:symbols_test -//tests:layering_test ||
  status=$?

# Beside its counters, if any test linked it, each object's list of lines.
root=$(/usr/bin/bazel "${startup[@]}" info --noshow_progress execution_root)
mkdir -p "$counters/proc/self/cwd"
(cd "$root" && find bazel-out/*/bin/lib bazel-out/*/bin/plans -name '*.gcno' \
  -exec cp --parents -t "$counters/proc/self/cwd" {} +)
/usr/bin/python3 tools/ci/coverage.py "$counters" || status=1
exit "$status"
