#!/bin/bash
# The archive ($1) shows the functions that lib/moeplan.h declares, no more and no
# less, and calls nothing of CUDA that allocates, copies or waits, but for what
# host dispatch reads back and measuring waits for. Runs at the root of the sources.
set -euo pipefail
archive=$1
header=lib/moeplan.h
failed=0

fail() {
  echo "symbols_test: $1"
  failed=1
}

# One name a line from a list with a title; says so if there is any.
fail_if_any() {
  if [[ -n $2 ]]; then fail "$1:"$'\n'"$2"; fi
}

[[ -s $archive ]] || fail "cannot read the archive $archive"
[[ -s $header ]] || fail "cannot read $header: add //lib:sources to the data"
[[ $failed == 0 ]] || exit 1

declared=$(sed '/^ *#/d' "$header" | tr '\n' ' ' | sed 's:/\*:\n&:g' |
  sed 's:/\*.*\*/::' | tr '\n' ' ' | grep -o 'MOEPLAN_API [^;]*;' |
  sed -n 's/^[^(]*[ *]\(moeplan_[a-z0-9_]*\)(.*/\1/p' | LC_ALL=C sort)
defined=$(nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' |
  LC_ALL=C sort)
called=$(nm -u "$archive" | awk 'NF == 2 { print $2 }' | LC_ALL=C sort -u)

[[ $(wc -l <<<"$declared") -ge 20 ]] || fail "cannot parse $header: $declared"
[[ -n $called ]] || fail "cannot read the calls of $archive"
fail_if_any "declared but not in the archive" \
  "$(LC_ALL=C comm -23 <(echo "$declared") <(echo "$defined"))"
fail_if_any "in the archive but not declared" \
  "$(LC_ALL=C comm -13 <(echo "$declared") <(echo "$defined"))"
fail_if_any "public without the prefix moeplan_" \
  "$(grep -v '^moeplan_' <<<"$defined" || true)"

# The archive is one merged object. What lib/host_dispatch.c and lib/measure.c need is
# excepted;
# layering_test.sh sees that nobody else calls it.
read_back='^(cudaMemcpy2DAsync|cudaStreamSynchronize|cudaEventSynchronize)$'
banned='^cuda(Malloc|Free|HostAlloc|HostRegister|Memcpy|Memset|Memory)'
banned+='|^cuda(Device|Stream|Event|Ctx)Synchronize|^cudaStreamAttachMem'
banned+='|^cu(Mem|CtxSynchronize|StreamSynchronize|EventSynchronize)'
fail_if_any "calls that allocate, copy or wait" \
  "$(grep -E "$banned" <<<"$called" | grep -vE "$read_back" || true)"

exit $failed
