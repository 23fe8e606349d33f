#!/usr/bin/env bash
# Installs what the build needs on Debian 12; says nothing when it is all there.
# Usage: tools/setup.sh [further packages]
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"

packages=(bazel-bootstrap googletest libjansson-dev gcc g++ binutils libc6-dev
  python3 "$@")
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

cuda=${CUDA_PATH:-/usr/local/cuda}
if [ ! -x "$cuda/bin/nvcc" ]; then
  echo "tools/setup.sh: no CUDA toolkit at $cuda: install CUDA 13.0 there, or point CUDA_PATH to it" >&2
  exit 1
fi
release=$("$cuda/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ "$release" != 13.0 ]; then
  echo "tools/setup.sh: found CUDA ${release:-(unknown)} at $cuda, but 13.0 is wanted: point CUDA_PATH to it" >&2
  exit 1
fi
