#!/bin/bash
# Writes tests/golden/cases anew from what the host device computes now. Read the
# diff: a changed line means changed bits, which the contract forbids.
# Arguments go to Bazel (--config=sm90 builds faster).
set -eu
cd "$(dirname "$0")/.."
bazel build "$@" //tests:golden_cases_test
mkdir -p tests/golden/cases
MOEPLAN_UPDATE_GOLDEN_CASES=$PWD/tests/golden/cases \
  .bazel/bin/tests/golden_cases_test \
  --gtest_brief=1 --gtest_filter='*.EveryStageHasItsHash/*'
git --no-pager diff --stat -- tests/golden/cases
