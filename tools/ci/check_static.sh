#!/usr/bin/env bash
# clang-tidy and cppcheck over the C files of lib/, plans/, kernels/host/ and
# tools/: no finding is let through. What is silenced says why, in .clang-tidy or
# beside the line (NOLINTNEXTLINE, cppcheck-suppress).
# Run it after a build: clang-tidy reads the headers that the build linked.
# Usage: tools/ci/check_static.sh [Bazel's start-up options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

/usr/bin/python3 tools/compile_commands.py "$@"
mapfile -t files < <(git -c safe.directory="$PWD" ls-files -- \
  'lib/*.c' 'plans/*.c' 'kernels/host/*.c' 'tools/*.c')
[ ${#files[@]} -gt 0 ] || {
  echo "static: git lists no C file here" >&2
  exit 1
}

failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# One file a run: several in one confuse its va_list checker (clang 14).
printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(nproc)" -n 1 clang-tidy -p . --quiet >"$log" 2>&1 || failed=1
if [ "$failed" -ne 0 ]; then
  grep -v ' warnings\? generated\.$' "$log" || true
fi
echo "clang-tidy: ${#files[@]} files, $(grep -cE ': (error|warning): ' "$log" || true) findings"

# Without the headers of the system and of CUDA: no findings in foreign code.
if cppcheck --std=c11 --language=c -j "$(nproc)" --quiet --inline-suppr \
  --enable=warning,performance,portability,style --error-exitcode=1 \
  --template=gcc -I . -I lib \
  "${files[@]}" >"$log" 2>&1; then
  echo "cppcheck: ${#files[@]} files, 0 findings"
else
  failed=1
  cat "$log"
  echo "cppcheck: findings above"
fi
exit "$failed"
