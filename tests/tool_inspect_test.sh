#!/usr/bin/env bash
# moeplan inspect, and run on shards, on a config.json and on the names of
# compressed-tensors.
# Usage: tool_inspect_test.sh TOOL CASES_FOLDER
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/tool_checks.sh"

cases=$2
small=$cases/glm53_noren.safetensors
dense=model.layers.0.mlp
routed=model.layers.3.mlp

# problems N: so many lines say what is wrong, and one sentence says how many.
problems() {
  [ "$(grep -c '^problem: cannot ' "$work/out")" -eq "$1" ] ||
    fail "$what: not $1 problems"
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line on stderr"
  grep -q "^cannot accept .*: $1 problem" "$work/err" || fail "$what: no count"
}

# change FOLDER KIND: the small case as a checkpoint of another form.
change() {
  mkdir -p "$work/$1"
  python3 - "$small" "$work/$1" "$2" <<'PYTHON'
import json, struct, sys

source, folder, kind = sys.argv[1:]
data = open(source, "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
body = data[8 + length:]
config = json.loads(header.pop("__metadata__")["case"])
tensors = {name: (h["dtype"], h["shape"], body[h["data_offsets"][0]:
                                               h["data_offsets"][1]])
           for name, h in header.items()}
config["num_hidden_layers"] = 4
config["first_k_dense_replace"] = 3
expert = "model.layers.3.mlp.experts.5."

if kind == "compressed":
    for name in list(tensors):
        dtype, shape, bits = tensors[name]
        if ".experts." not in name:
            continue
        if name.endswith(".weight_scale_2"):
            inverse = struct.pack("<f", 1 / struct.unpack("<f", bits)[0])
            del tensors[name]
            tensors[name[:-7] + "global_scale"] = (dtype, [1], inverse)
        elif name.endswith("_proj.weight"):
            tensors[name + "_packed"] = tensors.pop(name)
elif kind == "many":
    del tensors[expert + "up_proj.weight"]
    for name in [n for n in tensors if ".experts.9." in n]:
        del tensors[name]
    dtype, shape, bits = tensors[expert + "gate_proj.weight_scale"]
    tensors[expert + "gate_proj.weight_scale"] = (dtype, shape,
                                                  b"\xff" + bits[1:])
    config["num_hidden_layers"] = 1
elif kind == "groups":
    config["n_group"] = 4
elif kind == "kinds":
    config["first_k_dense_replace"] = 0
    config["num_hidden_layers"] = 0
if kind != "many":
    config["num_hidden_layers"] = 1

shards = 3 if kind in ("shards", "compressed") else 1
parts = [{} for _ in range(shards)]
for i, name in enumerate(sorted(tensors)):
    parts[i % shards][name] = tensors[name]
names = ["model-%05d-of-%05d.safetensors" % (i + 1, shards)
         for i in range(shards)] if shards > 1 else ["model.safetensors"]
for name, part in zip(names, parts):
    header, at = {}, 0
    for tensor, (dtype, shape, bits) in part.items():
        header[tensor] = {"dtype": dtype, "shape": shape,
                          "data_offsets": [at, at + len(bits)]}
        at += len(bits)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/" + name, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, bits in part.values():
            out.write(bits)
if shards > 1:
    with open(folder + "/model.safetensors.index.json", "w") as out:
        json.dump({"metadata": {"total_size": len(body)},
                   "weight_map": {tensor: name for name, part in
                                  zip(names, parts) for tensor in part}}, out)
json.dump(config, open(folder + "/config.json", "w"))
PYTHON
}

# ---- good checkpoints ------------------------------------------------------------

run 0 inspect "$small"
quiet
says "checkpoint $small: 1 files, 208 tensors, 2 sites"
says "site $dense: dense"
says "  .gate_proj.weight BF16 [512, 256] (1 of 1)"
says "site $routed: routed, ModelOpt names, 16 experts, top-4"
says "  .experts.*.down_proj.weight_scale F8_E4M3 [256, 8] (16 of 16)"
says "  weight_scale_2 0.000114165 .. 0.00015515"
says "  weight_scale 0x67 (60) .. 0x7E (448)"
run 0 inspect "$small" --site $dense
says "1 sites"
run 0 inspect --json "$small"
quiet
python3 - "$work/out" <<'PYTHON' || fail "$what: wrong JSON"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["problems"] == [] and report["files"] == 1
dense, routed = report["sites"]
assert dense["kind"] == "dense" and dense["naming"] is None
assert routed["naming"] == "ModelOpt" and routed["experts"] == 16
assert routed["scales"]["weight_scale_codes"] == [0x67, 0x7E]
assert routed["scales"]["weight_scale_2"][0] <= routed["scales"]["weight_scale_2"][1]
tensors = {t["name"]: t for t in routed["tensors"]}
assert tensors[".experts.*.up_proj.weight"] == {
    "name": ".experts.*.up_proj.weight", "dtype": "U8", "shape": [128, 128],
    "found": 16, "expected": 16}
PYTHON

# A folder, its index, other names: the same results as the file's.
for kind in single shards compressed; do
  change $kind $kind
  run 0 inspect "$work/$kind"
  quiet
  run 0 run --checkpoint "$work/$kind" --rows 1,8
  [ "$(grep -c ' ok$' "$work/out")" -eq 2 ] || fail "$what: routing"
done
says "$routed"
run 0 inspect "$work/compressed"
says "compressed-tensors names"
says "(inverses of the file's)"
run 0 inspect "$work/shards/model.safetensors.index.json"
says "3 files"
run 0 run -c "$work/single/model.safetensors" --rows 1 \
  --config "$work/single/config.json"
MOEPLAN_ROUTE_TRACE=1 run 0 run -c "$work/shards" --rows 3 --site $routed
says "route $routed rows 3 row 23:"

# ---- bad ones --------------------------------------------------------------------

change many many
run 1 inspect "$work/many"
problems 3
says "$routed.experts.5.up_proj.weight: expected U8, found no tensor"
says "$routed.experts.9.gate_proj.weight: expected 16 experts by ModelOpt names"
says "$routed.experts.5.gate_proj.weight_scale: expected E4M3 block scales"
says "  .experts.*.up_proj.weight U8 [128, 128] (14 of 16)"
run 1 inspect "$work/many" --json
python3 -c 'import json, sys
assert len(json.load(open(sys.argv[1]))["problems"]) == 3' "$work/out" ||
  fail "$what: not 3 problems in the JSON"
run 1 run --checkpoint "$work/many"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line on stderr"

change groups groups
run 1 inspect "$work/groups"
problems 1
says "cannot plan n_group 4"
change kinds kinds
run 1 inspect "$work/kinds"
problems 1
says "site $dense: expected a routed site with first_k_dense_replace 0"

python3 - "$work/shards/config.json" <<'PYTHON'
import json, sys

config = json.load(open(sys.argv[1]))
config["num_hidden_layers"] = 4
json.dump(config, open(sys.argv[1], "w"))
PYTHON
run 1 inspect "$work/shards"
problems 2
says "layer 1: expected an MLP site in each of 4 layers, found none"
says "layer 2: expected"
rm "$work/shards/model-00002-of-00003.safetensors"
run 1 inspect "$work/shards"
problems 3
says "expected its shard model-00002-of-00003.safetensors beside the index"

mkfifo "$work/pipe"
for entry in "$work/pipe:found a pipe" "$work/none:No such file" \
  "$work:found a directory with neither" "/dev/null:found something"; do
  run 1 inspect "${entry%%:*}"
  problems 1
  says "${entry#*:}"
done
run 2 inspect
run 2 inspect "$small" "$small"
run 2 inspect "$small" --rows 1

# A file that shrinks under the map, between the check and the read, ends in a
# sentence: here the tool is stopped after it has mapped the file. (A progress
# line cannot be waited for, so a second map of the same bytes stands in: the
# handler is what is tested.)
cp "$small" "$work/shrink.safetensors"
run 0 run -c "$work/shrink.safetensors" --rows 1
"$tool" run -c "$work/shrink.safetensors" --rows 1,2,3,4,5,6,7,8,9,10,11,12 \
  >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 200); do
  grep -q shrink "/proc/$pid/maps" 2>/dev/null && break
  sleep 0.01
done
: >"$work/shrink.safetensors"
what="a file that shrinks"
wait $pid
status=$?
[ $status -eq 1 ] || fail "$what: status $status"
grep -Eq '^cannot (read the checkpoint: a mapped|load .*found it shorter)' \
  "$work/err" || fail "$what: no sentence"

# ---- progress ----------------------------------------------------------------------

what="progress on a pipe"
"$tool" inspect "$small" 2>"$work/err" >"$work/out"
quiet

# ---- memory ------------------------------------------------------------------------

# What a checkpoint holds stays in the file: 10.6 MB of it go through a process
# that may have 4 MB of its own. A sanitizer's program cannot even start so.
large=$cases/glm53_tiny.safetensors
limited() { (ulimit -d 4096 && "$tool" "$@") >"$work/out" 2>"$work/err"; }
if limited --help; then
  [ "$(stat -L -c %s "$large")" -gt 10000000 ] || fail "$large is small"
  limited inspect "$large" || fail "inspect with 4 MB"
  limited run -c "$large" --rows 1 || fail "run with 4 MB"
fi

[ "$failures" -eq 0 ] || exit 1
echo "tool_inspect_test: all passed"
