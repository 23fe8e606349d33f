#!/usr/bin/env bash
# Builds libmoeplan.a twice, from two copies of the checkout in two folders with two
# output bases, and compares the bytes. Each build starts from nothing, in an empty
# network namespace, with an empty environment and with the checkout and the home
# folder hidden. Prints the archive's hash and the versions that went into it.
# Usage: tools/ci/check_hermetic.sh [--counts=FILE] [Bazel's options]
#   --counts=FILE  'passed failed skipped' goes to FILE
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
checkout=$PWD

counts=/dev/null
options=()
for argument in "$@"; do
  case $argument in
    --counts=*) counts=${argument#*=} ;;
    *) options+=("$argument") ;;
  esac
done
cuda=$(realpath "$(tools/setup.sh --print-cuda)")
work=$(realpath "$(mktemp -d "${TMPDIR:-/var/tmp}/moeplan-hermetic.XXXXXX")")
finish() {
  chmod -R u+w "$work" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# Folders to hide: not those that the build itself stands in.
hidden=()
for folder in "$checkout" "${HOME:-}"; do
  case "$work/ $cuda/" in
    "${folder%/}"/* | *" ${folder%/}"/*) ;;
    *) [ ! -d "$folder" ] || hidden+=("$folder") ;;
  esac
done

isolate=(unshare --net --mount)
passed=0
skipped=0
if reason=$("${isolate[@]}" true 2>&1); then
  interfaces=$(unshare --net cat /proc/net/dev | sed -n '3,$s/:.*//p' | xargs)
  echo "hermetic: no network: interfaces there: $interfaces (down); hidden: ${hidden[*]}"
  passed=1
else
  isolate=()
  hidden=()
  skipped=1
  echo "hermetic: skipped: an empty network namespace is not permitted here: $reason"
fi

# build COPY: an own server would need a loopback interface, --batch does without.
build() {
  mkdir -p "$work/$1/home"
  git -c safe.directory="$checkout" ls-files -z |
    tar --create --null --files-from=- | tar --extract --directory "$work/$1/moeplan"
  "${isolate[@]}" /usr/bin/env -i PATH=/usr/bin:/bin HOME="$work/$1/home" \
    CUDA_PATH="$cuda" /bin/bash -c '
      set -euo pipefail
      cd "$1"
      read -r -a hidden <<<"$2"
      shift 2
      for folder in "${hidden[@]}"; do mount -t tmpfs none "$folder"; done
      exec "$@"' build "$work/$1/moeplan" "${hidden[*]}" \
    /usr/bin/bazel --batch --nohome_rc --output_user_root="$work/$1/bazel" \
    build --config=ci "${options[@]}" //:moeplan
}
for copy in one an/other; do
  mkdir -p "$work/$copy/moeplan"
  build "$copy"
done

echo "hermetic: built with"
dpkg-query -W -f '  ${Package} ${Version}\n' bazel-bootstrap gcc-12 binutils \
  libc6-dev googletest libjansson-dev
echo "  nvcc $("$cuda/bin/nvcc" --version | sed -n 's/^Cuda.*, V//p')"
hashes=()
for copy in one an/other; do
  hash=$(sha256sum "$work/$copy/moeplan/.bazel/bin/libmoeplan.a" | cut -d ' ' -f 1)
  echo "hermetic: $hash  libmoeplan.a of $work/$copy"
  hashes+=("$hash")
done
if [ "${hashes[0]}" = "${hashes[1]}" ]; then
  echo "$((passed + 1)) 0 $skipped" >"$counts"
  echo "hermetic: the same bytes"
else
  echo "$passed 1 $skipped" >"$counts"
  echo "hermetic: the bytes differ"
  exit 1
fi
