#!/bin/bash
# Writes tests/golden/plan anew from what the library prints now, and
# tests/golden/cases from what the host device computes. Read the diff.
# Arguments go to Bazel (--config=sm90 builds faster).
set -eu
cd "$(dirname "$0")/.."
bazel build "$@" //tests:print_test
MOEPLAN_UPDATE_GOLDEN=$PWD/tests/golden/plan .bazel/bin/tests/print_test \
  --gtest_brief=1 --gtest_filter=Print.PlansAndWorkspacesAreTheGoldenOnes
git --no-pager diff --stat -- tests/golden/plan
tests/update_golden_cases.sh "$@"
