#!/usr/bin/env bash
# Fails when clang-format would change a C, C++ or CUDA file of the checkout.
# Usage: tools/ci/check_format.sh [--fix]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)

patterns=('*.c' '*.h' '*.cc' '*.cu' '*.cuh')
files=()
while IFS= read -r -d '' file; do
  [ ! -f "$file" ] || files+=("$file")
done < <(git -c safe.directory="$PWD" ls-files -z -- "${patterns[@]}")
if [ ${#files[@]} -eq 0 ]; then
  echo "format: git lists no source file here" >&2
  exit 1
fi
printf '%s\0' "${files[@]}" | xargs -0 clang-format --style=file "${mode[@]}"
echo "format: ${#files[@]} files"
