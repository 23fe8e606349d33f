#!/bin/bash
# Who includes whom, who calls what, how long a file is. Runs at the root of the
# sources.
set -euo pipefail
shopt -s nullglob globstar
failed=0

fail() {
  echo "layering_test: $1"
  failed=1
}

# expect_includes ALLOWED FILE...: every quoted include matches ALLOWED, and no
# file of the project comes in by angle brackets but the public header.
expect_includes() {
  local allowed=$1 file line
  shift
  [[ $# -gt 0 ]] || fail "no files to look at: $allowed"
  for file; do
    while IFS= read -r line; do
      [[ $line =~ ^[[:space:]]*#[[:space:]]*include[[:space:]]*\"($allowed)\" ||
        ($line =~ \< && ! $line =~ \<(lib|plans|kernels|tests|tools)/) ]] ||
        fail "$file may not have: $line"
    done < <(grep -E '^ *# *include' "$file" || true)
  done
}

# expect_calls_only_in REGEX PATTERN FILE...: only files that match PATTERN call.
expect_calls_only_in() {
  local regex=$1 pattern=$2 file calls
  shift 2
  for file; do
    [[ ! $file =~ ^($pattern)$ ]] || continue
    calls=$(grep -nE "(^|[^A-Za-z0-9_.>])($regex)[A-Za-z0-9]* *\(" "$file" ||
      true)
    [[ -z $calls ]] || fail "$file may not call: $calls"
  done
}

# ---- includes ------------------------------------------------------------------

kernels=(kernels/**/*.{h,c,inc,cu,cuh})
lib=(lib/*.{h,c})
plans=(plans/*.{h,c})
tools=(tools/*.{h,c})
expect_includes 'kernels/.*' "${kernels[@]}"
expect_includes '(lib|kernels)/.*' "${lib[@]}"
expect_includes 'plans/steps.h' plans/*.c
expect_includes 'lib/recipe.h' plans/*.h
expect_includes 'tools/.*' "${tools[@]}"

outside=$(grep -l '<moeplan.h>' "${kernels[@]}" "${plans[@]}" || true)
[[ -z $outside ]] || fail "may not include <moeplan.h>: $outside"

# ---- stages of lib, earliest first ----------------------------------------------

stages=(
  "moeplan hooks check"                           # 0: what all share
  "dims"                                          # 1: config
  "device planner"                                # 2: planner
  "site"                                          # 3: site
  "options layout"                                # 4: levers, workspace
  "recipe row_groups choose kernel_table cublaslt matmul plan cost" # 5: plan
  "binding enqueue"                               # 6: binding
  "host_dispatch capture"                         # 7: run
)
declare -A stage_of
for i in "${!stages[@]}"; do
  for name in ${stages[i]}; do stage_of[$name]=$i; done
done
for file in lib/*.h; do
  name=$(basename "$file" .h)
  [[ -v stage_of[$name] ]] || {
    fail "$file has no stage: add it to the list"
    continue
  }
  while IFS= read -r included; do
    [[ -v stage_of[$included] ]] || continue
    ((stage_of[$included] <= stage_of[$name])) ||
      fail "$file (stage ${stage_of[$name]}) may not include lib/$included.h \
(stage ${stage_of[$included]})"
  done < <(sed -n 's/^ *# *include "lib\/\(.*\)\.h".*/\1/p' "$file")
done

# ---- recipes are tables ----------------------------------------------------------

for file in plans/*.c; do
  [[ $file != plans/recipes.c ]] || continue
  choices=$(grep -vE '^ *(/\*|\*)' "$file" |
    grep -wE 'if|switch|for|while|goto|return' || true)
  [[ -z $choices ]] || fail "$file is a table, but has: $choices"
done

# ---- calls -------------------------------------------------------------------------

library=("${lib[@]}" "${plans[@]}" "${kernels[@]}")
expect_calls_only_in \
  'malloc|calloc|realloc|free|strdup|aligned_alloc|posix_memalign' \
  'lib/hooks.c' "${library[@]}"
expect_calls_only_in 'getenv|secure_getenv' 'lib/environment.c' "${library[@]}"
expect_calls_only_in \
  'cudaMalloc|cudaFree|cudaHostAlloc|cudaHostRegister' 'none' "${library[@]}"
expect_calls_only_in \
  'cudaMemcpy|cudaMemset|cuda(Device|Stream|Event)Synchronize' \
  'lib/host_dispatch.c|lib/measure.c' "${library[@]}"

# ---- length --------------------------------------------------------------------------

for file in {lib,plans,kernels,tools}/**/*.{h,c,inc,cu,cuh,sh,py,bzl,bazel}; do
  [[ $file != lib/moeplan.h ]] || continue # the manual
  lines=$(wc -l <"$file")
  ((lines <= 400)) || fail "$file has $lines lines, at most 400"
done

exit $failed
