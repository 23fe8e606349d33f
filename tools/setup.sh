#!/usr/bin/env bash
# Installs what the build needs on Debian 12; says nothing when it is all there.
# Usage: tools/setup.sh [--print-cuda] [further packages]
#   --print-cuda  only prints the folder of the CUDA toolkit, installs nothing
#
# The toolkit is looked for in CUDA_PATH; else in /usr/local/cuda; else it is laid
# out from pinned wheels in MOEPLAN_CUDA_CACHE (~/.cache/moeplan/cuda-13.0). The rule
# tools/bazel/cuda_configure.bzl looks in the same places.
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"

cache=${MOEPLAN_CUDA_CACHE:-${HOME:-/root}/.cache/moeplan/cuda-13.0}
cuda=${CUDA_PATH:-/usr/local/cuda}
[ -n "${CUDA_PATH:-}" ] || [ -x "$cuda/bin/nvcc" ] || cuda=$cache
if [ "${1:-}" = --print-cuda ]; then
  echo "$cuda"
  exit
fi

packages=(bazel-bootstrap googletest libjansson-dev gcc g++ binutils libc6-dev xz-utils
  python3 "$@")
lay_out=0
if [ "$cuda" = "$cache" ] && [ ! -x "$cuda/bin/nvcc" ]; then
  lay_out=1
  packages+=(python3-pip)
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "tools/setup.sh: missing packages; run: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "tools/setup.sh: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # A list that cannot be refreshed is no error as long as the packages are found.
  apt-get -qq update </dev/null >"$log" 2>&1 || true
  if ! apt-get -qq install -y --no-install-recommends "${missing[@]}" \
    </dev/null >>"$log" 2>&1; then
    cat "$log" >&2
    echo "tools/setup.sh: could not install ${missing[*]}" >&2
    exit 1
  fi
fi

if [ "$lay_out" -eq 1 ]; then
  echo "tools/setup.sh: no CUDA toolkit in /usr/local/cuda: laying out CUDA 13.0 in $cuda (downloads 530 MB)" >&2
  if ! "$(dirname "${BASH_SOURCE[0]}")/cuda_toolkit.sh" "$cuda"; then
    echo "tools/setup.sh: could not lay out CUDA 13.0: install it in /usr/local/cuda, or point CUDA_PATH to it" >&2
    exit 1
  fi
fi
if [ ! -x "$cuda/bin/nvcc" ]; then
  echo "tools/setup.sh: no CUDA toolkit at $cuda: install CUDA 13.0 there, or point CUDA_PATH to it" >&2
  exit 1
fi
release=$("$cuda/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ "$release" != 13.0 ]; then
  echo "tools/setup.sh: found CUDA ${release:-(unknown)} at $cuda, but 13.0 is wanted: point CUDA_PATH to it" >&2
  exit 1
fi
