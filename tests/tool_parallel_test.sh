#!/usr/bin/env bash
# moeplan parallel on the host device: who holds what, that the ranks add up, and
# what is refused, on a machine without GPUs too.
# Usage: tool_parallel_test.sh TOOL CASES_FOLDER
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/tool_checks.sh"

# check RANKS ROWS EXPERTS SHARED: of the JSON, experts and shared columns of each
# rank, with commas between.
check() {
  python3 - "$work/out" "$@" <<'PYTHON' || fail "$what: wrong JSON"
import json, sys

r = json.load(open(sys.argv[1]))
ranks, rows, experts, shared = (list(map(int, a.split(","))) for a in sys.argv[2:])
assert len(r["ranks"]) == ranks[0], r["ranks"]
assert [part["experts"] for part in r["ranks"]] == experts, r["ranks"]
assert [part["shared"] for part in r["ranks"]] == shared, r["ranks"]
assert [one["rows"] for one in r["results"]] == rows
for one in r["results"]:
    assert 0 <= one["relative_l2"] < 2 ** -16, one
    assert one["ranks_seconds"] is None and one["sum_share"] is None, one
PYTHON
}

routed=(parallel --device host --hidden 64 --intermediate 32 --experts 30
  --top-k 8 --shared 112 --json)
run 0 "${routed[@]}"
check 2 1,4,8 15,15 48,64
run 0 "${routed[@]}" -n 4 --rows 1,8,20
check 4 1,8,20 7,8,7,8 16,32,32,32
run 0 "${routed[@]}" --ranks 1 --rows 2
check 1 2 30 112
for routing in uniform same zipf; do
  run 0 "${routed[@]}" -n 3 --rows 1,3 --routing $routing
  check 3 1,3 10,10,10 32,32,48
done
# More ranks than experts and than shards.
run 0 parallel --device host --hidden 64 --intermediate 32 --experts 6 --top-k 4 \
  --shared 48 -n 8 --json --rows 1,20
check 8 1,20 0,1,1,1,0,1,1,1 0,0,16,0,0,16,0,16
# The whole shared expert on one rank, on the only rank, or nowhere.
run 0 "${routed[@]}" --shared-expert first
check 2 1,4,8 15,15 112,0
run 0 "${routed[@]}" -n 1 --shared-expert whole
check 1 1,4,8 30 112
run 0 parallel --device host --hidden 64 --intermediate 32 --experts 16 --top-k 8 \
  --json --shared-expert whole
check 2 1,4,8 8,8 0,0

# The table; a dense site; levers.
run 0 parallel --device host --hidden 64 --intermediate 2096 -n 3 --rows 1,20
says "device    host, ranks one after another"
says "ranks     688 columns, 704 columns, 704 columns"
run 0 parallel --device host --hidden 64 --intermediate 32 --experts 16 --top-k 8 \
  --shared 32 --rows 4
says "ranks     8 experts + shared 16, 8 experts + shared 16"
says "1 GPU us  ranks us    no sum sum alone"
MOEPLAN_NO_ROW_BATCH=1 run 0 parallel --device host --hidden 64 --intermediate 32 \
  --experts 16 --top-k 8 --rows 4
says "per_row"
run 0 parallel --preset list
says "glm-5.3-flash"
run 0 parallel --help
says "--shared-expert=HOW"

# One device or none. Without devices listed there are none, wherever this runs.
export CUDA_VISIBLE_DEVICES=
refuse 1 "cannot run 2 ranks: each wants a GPU of its own, and here are 0" \
  parallel --preset glm-5.3-flash
refuse 1 "cannot run 8 ranks" parallel --preset glm-5.3-flash -n 8 --device cuda
refuse 2 "2 ranks with --shared-expert whole: the sum of their outputs would hold the shared expert 2 times" \
  parallel --preset glm-5.3-flash --shared-expert whole
refuse 2 "4 ranks with --shared-expert whole" "${routed[@]}" -n 4 \
  --shared-expert whole
refuse 2 "4 ranks of a dense site of 48 columns" parallel --device host \
  --hidden 64 --intermediate 48 -n 4
refuse 2 "--shared-expert first for a dense site" parallel --device host \
  --hidden 64 --intermediate 64 --shared-expert first
refuse 2 "--ranks 0: a whole number, 1..64" "${routed[@]}" -n 0
refuse 2 "--ranks 65" "${routed[@]}" -n 65
refuse 2 "--shared-expert half: split, first and whole" "${routed[@]}" \
  --shared-expert half
refuse 2 "--device cuda:0: cuda (rank r on GPU r) and host" parallel \
  --preset glm-4.5 --device cuda:0
refuse 2 "one of --preset NAME, --config FILE and --hidden H" parallel
refuse 2 "--routing zipf for a dense site" parallel --device host --hidden 64 \
  --intermediate 64 --routing zipf
refuse 2 "--plot" parallel --preset glm-4.5 --plot x.svg
refuse 2 "-n" bench --preset glm-4.5 -n 2

[ "$failures" -eq 0 ] || exit 1
echo "tool_parallel_test: all passed"
