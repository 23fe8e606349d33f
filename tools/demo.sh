#!/usr/bin/env bash
# Builds the program and runs the tiny model of tests/cases on the host device.
# Usage: tools/demo.sh [further arguments of `moeplan run`]
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
options=()
[ -t 2 ] || options=(--noshow_progress --color=no --curses=no)
/usr/bin/bazel build "${options[@]}" //tools:moeplan
exec .bazel/bin/tools/moeplan run \
  --checkpoint tests/cases/glm53_tiny.safetensors --rows 1,2,8,40 \
  --device host "$@"
