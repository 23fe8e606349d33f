#!/bin/bash
# Writes tests/golden/tool anew from what the tool prints now. Read the diff.
# Arguments go to Bazel (--config=sm90 builds faster).
set -eu
cd "$(dirname "$0")/.."
bazel build "$@" //tools:moeplan
tests/tool_plan_test.sh .bazel/bin/tools/moeplan tests/golden/tool --update
git --no-pager diff --stat -- tests/golden/tool
