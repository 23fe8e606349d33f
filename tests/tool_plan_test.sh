#!/usr/bin/env bash
# moeplan plan against the files of tests/golden/tool. After a change that is
# meant, tests/update_tool_golden.sh writes them anew.
# Usage: tool_plan_test.sh TOOL GOLDEN_FOLDER [--update]
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/tool_checks.sh"

golden=$2
update=${3:-}

# golden FILE ARGUMENT...: the output is the file's.
golden() {
  local file=$golden/$1.txt
  shift
  run 0 "$@"
  if [ -n "$update" ]; then
    cp "$work/out" "$file"
  elif ! diff -u "$file" "$work/out" >"$work/diff"; then
    fail "$what: not as $file (tests/update_tool_golden.sh)"
    head -40 "$work/diff"
  fi
}

# Each preset on the host, whose kernels are all there; devices by dense sites.
for preset in glm-5.3-flash glm-4.5 glm-4.5-air kimi-k2 qwen3-235b-a22b \
  qwen3-30b-a3b; do
  golden "$preset-host" plan --preset $preset --device host --rows 1,8,64
done
for device in h200 h100 gb10; do
  golden "glm-4.5-dense-$device" plan --preset glm-4.5 --site dense \
    --device $device --rows 1,64,4096
done
golden presets plan --preset list
[ -z "$update" ] || exit "$failures"

# Floors of a routed site are there whether or not the device has its kernels:
# with them the plan's, else the sentence, and what the host's plan must read.
for device in h200 h100 gb10; do
  case $device in
    h200) rate=4.54e12 ;;
    h100) rate=3.35e12 ;;
    gb10) rate=273e9 ;;
  esac
  what="moeplan plan --preset glm-5.3-flash --device $device"
  "$tool" plan --preset glm-5.3-flash --site routed --device $device \
    --rows 1 >"$work/out" 2>"$work/err"
  status=$?
  floor=$(sed -n 's/^\(byte \)\{0,1\}floor: \([0-9.]*\) us (\([0-9]*\) bytes.*/\2 \3/p' \
    "$work/out")
  python3 - "$floor" "$rate" <<'PYTHON' || fail "$what: wrong floor \"$floor\""
import sys

us, bytes_read = map(float, sys.argv[1].split())
assert bytes_read > 8 * 3 * 4096 * 2048 * 9 / 16
assert abs(us - bytes_read / float(sys.argv[2]) * 1e6) < 0.02 * us
PYTHON
  if grep -q '^refused' "$work/out"; then
    [ $status -eq 1 ] || fail "$what: refused with status $status"
    grep -q "^refused rows 1: cannot plan recipe decode on plan:$device: ." \
      "$work/out" || fail "$what: does not say why"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one sentence"
  else
    [ $status -eq 0 ] || fail "$what: status $status"
  fi
done
run 0 plan --preset glm-4.5 --site dense --device h100 --rows 1
says "9.89e+14 flop/s (datasheet)"
run 0 plan --preset glm-4.5 --site dense --device gb10 --rows 1
says "flop/s not known (datasheet)"
run 0 plan --preset glm-4.5 --site dense --rows 1
says "device plan:h200: NVIDIA H200, sm_90, 132 SMs"
says "(measured)"

# A config.json by each table of names.
config='{"hidden_size": 2048, "intermediate_size": 6144, "num_experts": 128,
  "moe_intermediate_size": 768, "num_experts_per_tok": 8, "norm_topk_prob": true,
  "first_k_dense_replace": 0}'
echo "$config" >"$work/config.json"
run 0 plan --config "$work/config.json" --device host --site routed --rows 1,8,64
cp "$work/out" "$work/qwen"
run 0 plan --preset qwen3-30b-a3b --device host --site routed --rows 1,8,64
cmp "$work/out" "$work/qwen" || fail "$what: not as its config.json"
echo '{"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
  "num_local_experts": 32, "num_experts_per_tok": 4}' >"$work/config.json"
run 0 plan --config "$work/config.json" --device host
says "note: only the sizes are this model's: gpt-oss"
says "site routed: hidden 2880, 32 experts of 2880, top-4"
MOEPLAN_NO_ROW_BATCH=1 run 0 plan --preset glm-4.5 --device host --rows 2 \
  --site routed
says "lever no_row_batch 1"

refuse 1 "cannot plan n_group 8, topk_group 4" plan --preset deepseek-v3
refuse 1 "cannot plan dense_local_intermediate 0" plan --preset qwen3-30b-a3b \
  --site dense
refuse 1 "$work/none" plan --config "$work/none"
refuse 2 "--preset glm-9: must be one of glm-5.3-flash, " plan --preset glm-9
refuse 2 "one of --preset" plan
refuse 2 "one of --preset" plan --preset glm-4.5 --config "$work/config.json"
refuse 2 "--device tpu" plan --preset glm-4.5 --device tpu
refuse 2 "--device plan:h200" plan --preset glm-4.5 --device plan:h200
refuse 2 "--device cuda:x" plan --preset glm-4.5 --device cuda:x
refuse 2 "--site both" plan --preset glm-4.5 --site both
refuse 2 "--device h200" run --checkpoint "$work/none" --device h200

[ "$failures" -eq 0 ] || exit 1
echo "tool_plan_test: all passed"
