#!/usr/bin/env bash
# moeplan bench on the host device: the JSON, who hits how many experts, the
# bytes of the floor, the plot, and what is refused. No time is judged.
# Usage: tool_bench_test.sh TOOL CASES_FOLDER
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/tool_checks.sh"

# check EXPRESSIONS: Python assertions over the report r and its results by rows.
check() {
  python3 - "$work/out" "$1" <<'PYTHON' || fail "$what: wrong JSON"
import json, sys

r = json.load(open(sys.argv[1]))
at = {one["rows"]: one for one in r["results"]}
site = r["site"]
expert = 3 * site["hidden"] * site["intermediate"] * 9 / 16
shared = 6 * site["hidden"] * site["shared"]
router = 2 * site["hidden"] * site["experts"]
for one in r["results"]:
    time = one["seconds"]
    assert 0 < time["min"] <= time["p10"] <= time["median"] <= time["p90"], one
    assert time["samples"] >= 5 and one["batch"] % r["sets"] == 0, one
    assert one["call_seconds"] is None and one["reuse_is_far"], one
    assert abs(one["floor_seconds"] * r["machine"]["bytes_per_second"]
               - one["bytes"]) < 1e-6 * one["bytes"], one
    assert abs(one["times_floor"] * one["floor_seconds"] - time["median"]) \
        < 1e-6 * time["median"], one
    assert one["experts_min"] <= one["experts"] <= one["experts_max"], one
exec(sys.argv[2])
PYTHON
}

small=(bench --device host --seconds 0.01 --json
  --hidden 32 --intermediate 16 --experts 288 --top-k 8)

# Who hits how many experts. Routed from outside, the router's bytes are not part.
run 0 "${small[@]}" --routing same --sets 4
check '
assert r["routing"] == "same" and r["sets"] == 4 and r["copies"] == 1
assert r["machine"]["device"] == "host" and r["machine"]["gpu"] is None
assert [one["rows"] for one in r["results"]] == [1, 2, 4, 8]
assert all(one["experts_min"] == one["experts_max"] == 8 for one in at.values())
for rows, one in at.items():
    assert one["bytes"] == 8 * expert + 4 * rows * 32 + 8 * rows * 8, one'
run 0 "${small[@]}" --routing distinct --sets 4
check 'assert all(one["experts_min"] == one["experts_max"] == 8 * rows
           for rows, one in at.items())'
run 0 "${small[@]}" --routing uniform --sets 64
check '
for rows, one in at.items():
    mean = 288 * (1 - (1 - 8 / 288) ** rows)
    assert abs(one["experts"] - mean) < 1, (one, mean)'
run 0 "${small[@]}" --routing live --sets 64 --rows 1,2,3,4
check '
for rows, measured in {1: 8.00, 2: 13.74, 3: 18.76, 4: 23.35}.items():
    assert abs(at[rows]["experts"] - measured) < 0.15, at[rows]'
# Zipf(1.0) hits fewer than uniform, and more than all alike.
run 0 "${small[@]}" --routing zipf --sets 64
check '
assert at[1]["experts"] == 8
assert 24 < at[4]["experts"] < 27, at[4]
assert 42 < at[8]["experts"] < 45, at[8]'

# The site's own router: its bytes are part of the floor, the shared expert too.
run 0 "${small[@]}" --shared 48 --rows 1,8 --plot "$work/plot.svg"
check '
assert r["routing"] == "router" and site["shared"] == 48
assert at[1]["experts"] == 8 and 40 < at[8]["experts"] <= 64, at[8]
for rows, one in at.items():
    bytes = one["experts"] * expert + shared + router + 4 * rows * 32
    assert abs(one["bytes"] - bytes) < 1e-6 * bytes, one'
python3 - "$work/plot.svg" <<'PYTHON' || fail "$what: wrong plot"
import sys, xml.etree.ElementTree as tree

root = tree.parse(sys.argv[1]).getroot()
name = "{http://www.w3.org/2000/svg}"
assert root.tag == name + "svg"
assert len(root.findall(name + "polyline")) == 2
assert len(root.findall(name + "circle")) == 4
PYTHON

# Dense sites, a config.json, the table.
run 0 bench --device host --seconds 0.01 --hidden 32 --intermediate 48 --rows 2 \
  --json
check '
assert site["kind"] == "dense" and r["routing"] == "none"
assert at[2]["bytes"] == 6 * 32 * 48 + 4 * 2 * 32'
echo '{"hidden_size": 32, "intermediate_size": 96, "num_experts": 16,
  "moe_intermediate_size": 16, "num_experts_per_tok": 4, "norm_topk_prob": true,
  "first_k_dense_replace": 0}' >"$work/config.json"
run 0 bench --device host --seconds 0.01 --config "$work/config.json" --rows 3
says "site      hidden 32, 16 experts of 16, top-4, shared 0; routing router"
says "sets      2 of x and ids in turn over 1 copies of"
says "floor us x floor"
run 0 bench --device host --seconds 0.01 --config "$work/config.json" --rows 3 \
  --site dense
says "site      dense, hidden 32, intermediate 96"
! grep -q ^levers "$work/out" || fail "$what: levers"
MOEPLAN_NO_ROW_BATCH=1 run 0 bench --device host --seconds 0.01 \
  --config "$work/config.json" --rows 3
says "levers    no_row_batch 1"
says "per_row"
run 0 bench --preset list
says "glm-5.3-flash"

# Each node of a plan by itself.
run 0 bench -d host --hidden 128 --intermediate 64 --experts 16 --top-k 4 --shared 32 \
  --rows 1,9 --sets 2 --seconds 0.01 --nodes
says 'nodes of 1 rows, each by itself, us'
says 'nodes of 9 rows, each by itself, us'
for op in logits_bf16 sort_scan_i32 grouped_up_nvfp4 combine_bf16; do
  grep -qE "^ +[0-9]+ moep_${op}_host +[0-9.]+\$" "$work/out" || fail "$what: no time of $op"
done

# The numerics table. The bar is the tool's, and asserted here from what it
# prints: against exact each path has bf16's rounding and no more, between the
# paths there is nothing, and weights rounded to bf16 first are told apart.
run 0 bench --numerics --device host --json
python3 - "$work/out" <<'PYTHON' || fail "$what: wrong figures"
import json, sys

r = json.load(open(sys.argv[1]))
assert r["site"] == {"hidden": 256, "intermediate": 512, "experts": 16,
                     "top_k": 8, "rows": 64}, r
assert r["outputs"] == 64 * 8 * 256 and r["different"] == 0, r
at = {(line["of"], line["against"]): line["errors"] for line in r["lines"]}
assert len(at) == len(r["lines"]) == 4, r
for of in "grouped", "GEMV":
    errors = at[of, "exact"]
    assert 0.0035 < errors["max_rel"] <= 0.0040, errors
    assert 0.0010 < errors["of_largest"] <= 2 ** -8, errors
assert at["grouped", "exact"] == at["GEMV", "exact"], at
assert set(at["grouped", "GEMV"].values()) == {0}, at
rounded = at["grouped", "bf16 weights"]
assert rounded["max_rel"] > 0.02, rounded
assert rounded["max_abs"] > at["grouped", "exact"]["max_abs"], rounded
PYTHON
run 0 bench --numerics --device host
says "site      hidden 256, 16 experts of 512, top-8, 64 rows"
says "different 0 outputs"
[ "$(grep -cE '^(grouped|GEMV) ' "$work/out")" -eq 4 ] || fail "$what: 4 lines"
fixed="--numerics with other options than --device, --json and --verbose"
refuse 2 "$fixed" bench --numerics --rows 8
refuse 2 "$fixed" bench --numerics --preset glm-4.5
refuse 2 "$fixed" bench --numerics --hidden 32 --intermediate 16

sizes=(bench --device host --hidden 32 --intermediate 16)
refuse 2 "one of --preset NAME, --config FILE and --hidden H" bench
refuse 2 "one of --preset NAME" bench --preset glm-4.5 --hidden 32
refuse 2 "--preset glm-9: must be one of" bench --preset glm-9
refuse 1 "$work/none" bench --device host --config "$work/none"
refuse 2 "--hidden H goes with them" bench --preset glm-4.5 --experts 8
refuse 2 "--hidden 32 without --intermediate I" bench --hidden 32
refuse 2 "--experts E and --top-k K are needed" "${sizes[@]}" --experts 8
refuse 2 "--experts E and --top-k K are a routed one's" "${sizes[@]}" \
  --site dense --experts 8 --top-k 2
refuse 2 "--routing zipf for a dense site" "${sizes[@]}" --routing zipf
refuse 2 "--routing all: router, uniform, zipf" "${sizes[@]}" --routing all
refuse 2 "--routing distinct for 8 rows: they go to 64 experts, the site has 16" \
  "${sizes[@]}" --experts 16 --top-k 8 --routing distinct
refuse 2 "--sets 0: a whole number, 1..256" "${sizes[@]}" --sets 0
refuse 2 "--sets 257" "${sizes[@]}" --sets 257
refuse 2 "--hidden 1x" bench --hidden 1x
refuse 2 "--seconds nan" "${sizes[@]}" --seconds nan
refuse 2 "--seconds 0" "${sizes[@]}" --seconds 0
refuse 2 "--device h200" "${sizes[@]}" --device h200
refuse 2 "--rows 0" "${sizes[@]}" --rows 0
refuse 1 "hidden_size 40" bench --device host --hidden 40 --intermediate 16
refuse 1 "--plot $work/none/p.svg" "${sizes[@]}" --rows 1 --seconds 0.01 \
  --plot "$work/none/p.svg"

[ "$failures" -eq 0 ] || exit 1
echo "tool_bench_test: all passed"
