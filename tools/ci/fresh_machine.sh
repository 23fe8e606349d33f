#!/usr/bin/env bash
# README's two commands on a bare Debian 12: debootstrap lays one out in a folder, a
# clean clone of HEAD goes in, and tools/demo.sh and tools/test.sh run inside.
#
# Usage: tools/ci/fresh_machine.sh [--without-cuda] [--keep] [FOLDER]
#   --without-cuda  no CUDA toolkit there: tools/setup.sh lays one out from wheels;
#                   otherwise this machine's is seen there, read-only
#   --keep          the folder stays
#   FOLDER          where the machine is laid out; must not exist
# Needs root and debootstrap. What is reached from this machine is reached from there
# in the same way: apt's sources and options, pip's index, certificates and proxies.
set -euo pipefail
export PATH="${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cuda=$(realpath "$(tools/setup.sh --print-cuda)")
keep=0
root=
for argument in "$@"; do
  case $argument in
    --without-cuda) cuda= ;;
    --keep) keep=1 ;;
    -*)
      sed -n '2,12s/^# \?//p' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
    *) root=$argument ;;
  esac
done
[ "$(id -u)" -eq 0 ] || {
  echo "fresh_machine: must be root, for debootstrap and mounts" >&2
  exit 1
}
command -v debootstrap >/dev/null || {
  echo "fresh_machine: missing debootstrap; run: apt-get install -y debootstrap" >&2
  exit 1
}
[ -z "$cuda" ] || [ -x "$cuda/bin/nvcc" ] || {
  echo "fresh_machine: no CUDA toolkit at $cuda to show there; try --without-cuda" >&2
  exit 1
}
[ -n "$root" ] || root=$(mktemp -u "${TMPDIR:-/var/tmp}/moeplan-fresh.XXXXXX")
[ ! -e "$root" ] || {
  echo "fresh_machine: $root exists" >&2
  exit 1
}
mkdir -p "$root"
root=$(realpath "$root")
# The mounts below live in a namespace of their own, so only files are left here.
[ "$keep" -eq 1 ] || trap 'rm -rf --one-file-system "$root"' EXIT

# From apt's own list of sources: mirror, suite, component of Debian 12.
sources=$(apt-get indextargets \
  --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(CREATED_BY)' |
  awk '$2 ~ /^bookworm/ && $3 == "main" && $4 == "Packages" { print $1, $2, $3 }' |
  sort -u)
mirror=$(awk '$2 == "bookworm" { print $1; exit }' <<<"$sources")
[ -n "$mirror" ] || {
  echo "fresh_machine: apt knows no source of Debian 12 here (bookworm main)" >&2
  exit 1
}

echo "== debootstrap"
log=$(mktemp)
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$log" 2>&1 || {
  tail -20 "$log"
  exit 1
}
rm -f "$log"
sed 's/^/deb /' <<<"$sources" >"$root/etc/apt/sources.list"
apt-config dump Acquire >"$root/etc/apt/apt.conf.d/99this-machine"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
mkdir -p "$root/etc/this-machine"
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
[ ! -f "$certificates" ] || cp -L "$certificates" "$root/etc/this-machine/ca.crt"

git -c safe.directory="$PWD" clone --quiet --no-hardlinks . "$root/root/moeplan"
[ -z "$cuda" ] || mkdir -p "$root/usr/local/cuda"

# What the commands see of this machine's environment: how to reach registries.
environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
  PIP_CERT=/etc/this-machine/ca.crt)
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL \
  PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done

# Own mounts and processes; a new root rather than chroot, inside which Bazel could
# not open its sandbox. All of it ends with the last command.
unshare --mount --pid --fork /bin/bash -c '
  set -euo pipefail
  root=$1 cuda=$2
  shift 2
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  if [ -n "$cuda" ]; then
    mount --bind "$cuda" "$root/usr/local/cuda"
    mount -o remount,bind,ro "$root/usr/local/cuda"
  fi
  mkdir -p "$root/mnt/outside"
  cd "$root"
  pivot_root . mnt/outside
  umount --lazy /mnt/outside
  exec env -i "$@"' fresh "$root" "$cuda" "${environment[@]}" /bin/bash -c '
  set -euo pipefail
  cd /root/moeplan
  echo "== Debian $(cat /etc/debian_version), $(dpkg-query -W | wc -l) packages," \
    "CUDA toolkit: $(ls -d /usr/local/cuda 2>/dev/null || echo none)"
  for command in tools/demo.sh tools/test.sh; do
    SECONDS=0
    echo "== $command"
    status=0
    "$command" 2>&1 || status=$?
    echo "== $command: exit status $status after $SECONDS s"
    [ "$status" -eq 0 ] || exit "$status"
  done'
