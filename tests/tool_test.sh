#!/usr/bin/env bash
# The built tool on the case files and on bad files and arguments.
# Usage: tool_test.sh TOOL CASES_FOLDER
# tool_inspect_test.sh and tool_plan_test.sh have the other commands.
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/tool_checks.sh"

cases=$2
small=$cases/glm53_noren.safetensors

# check_json SITES ROW_COUNTS: every pair is there, compared and passed.
check_json() {
  python3 - "$work/out" "$1" "$2" <<'PYTHON' || fail "$what: wrong JSON"
import json, sys

report = json.load(open(sys.argv[1]))
sites, rows = sys.argv[2].split(","), [int(n) for n in sys.argv[3].split(",")]
results = report["results"]
assert report["passed"] is True
assert report["device"] == "host" and report["x"] == "file"
assert [(r["site"], r["rows"]) for r in results] == [
    (site, n) for site in sites for n in rows]
for r in results:
    assert r["passed"] is True, r
    assert 0.0 < r["error"] <= 0.0040, r
    assert r["seconds"] > 0 and r["nodes"] >= 1 and r["workspace_bytes"] > 0, r
    assert r["rows_repeated"] == (r["rows"] > report["file_rows"]), r
    if r["kind"] == "routed":
        compared = max(r["rows"], report["file_rows"])
        assert r["routing"] == {"rows": compared, "rows_differing": 0}, r
    else:
        assert r["routing"] is None, r
PYTHON
}

# spoil FILE KIND: a copy of the small case file with one thing wrong.
spoil() {
  python3 - "$small" "$work/$1" "$2" <<'PYTHON'
import json, struct, sys

source, target, kind = sys.argv[1:]
data = bytearray(open(source, "rb").read())
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
body = data[8 + length:]
expert = "model.layers.3.mlp.experts.5."

def begin(name):
    return header[name]["data_offsets"][0]

if kind == "nan":
    body[begin(expert + "up_proj.weight_scale") + 3] = 0x7F
elif kind == "negative":
    body[begin(expert + "down_proj.weight_scale")] = 0x85
elif kind == "missing":
    del header[expert + "gate_proj.weight"]
elif kind == "shape":
    header["model.layers.0.mlp.up_proj.weight"]["shape"] = [256, 512]
elif kind == "dtype":
    header["model.layers.3.mlp.gate.weight"]["dtype"] = "F16"
elif kind == "limit":
    header["__metadata__"]["case"] = header["__metadata__"]["case"].replace(
        '"swiglu_limit": 2.0', '"swiglu_limit": 0')
elif kind == "reference":
    at = begin("expect.moe.ref_f32")
    body[at:at + 4] = struct.pack("<f", 100.0)
elif kind == "nan_reference":
    at = begin("expect.dense.ref_f32")
    body[at:at + 4] = struct.pack("<f", float("nan"))
elif kind == "ids":
    at = begin("expect.router.ids") + 7 * 4 * 4
    body[at:at + 4] = struct.pack("<i", -1)
elif kind == "no_x":
    header["input.other"] = header.pop("input.x")
elif kind == "no_expect":
    for name in [name for name in header if name.startswith("expect.")]:
        del header[name]
elif kind == "eight_rows":
    for name in ("input.x", "expect.router.ids", "expect.moe.ref_f32",
                 "expect.dense.ref_f32"):
        rows, offsets = header[name]["shape"], header[name]["data_offsets"]
        offsets[1] = offsets[0] + (offsets[1] - offsets[0]) // rows[0] * 8
        rows[0] = 8
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8 + (kind == "odd"))
open(target, "wb").write(struct.pack("<Q", len(text)) + text + body)
PYTHON
}

dense=model.layers.0.mlp
routed=model.layers.3.mlp

# The case files.
for entry in glm53_tiny:40 glm53_288:96 glm53_noren:24; do
  file=$cases/${entry%:*}.safetensors
  rows=${entry#*:}
  run 0 run --checkpoint "$file"
  quiet
  [ "$(grep -c '^model\.' "$work/out")" -eq 8 ] || fail "$what: not 8 lines"
  [ "$(grep -c ' ok$' "$work/out")" -eq 4 ] || fail "$what: not 4 times ok"
  omits differ
  omits repeated
  run 0 run --checkpoint "$file" --json --rows "1,3,7,9,$rows,$((rows + 1))"
  quiet
  check_json "$dense,$routed" "1,3,7,9,$rows,$((rows + 1))"
done

# More rows than the file has, one site, levers.
run 0 run -c "$small" --rows 60 --site $routed.
says "60*"
says "more rows than the file's 24: the file's rows are repeated cyclically"
omits $dense
run 0 run -c "$small" --rows 2,60 --site $routed --device host --json
check_json $routed 2,60
MOEPLAN_NO_ROW_BATCH=1 run 0 run -c "$small" --rows 5 --json
check_json $dense,$routed 5
MOEPLAN_HOST_DISPATCH=1 run 0 run -c "$small" --rows 5 --site $routed --json
check_json $routed 5
MOEPLAN_ROW_BATCH_MAX=4 run 0 run -c "$small" --rows 5 --site $routed --verbose
[ -s "$work/err" ] || fail "$what: no warning with --verbose"

# Where each row went: after the table, in the JSON, and only when asked.
run 0 run -c "$small" --rows 7 --site $routed
omits "route "
MOEPLAN_ROUTE_TRACE=0 run 0 run -c "$small" --rows 7 --json
omits '"trace"'
MOEPLAN_ROUTE_TRACE=1 run 0 run -c "$small" --rows 1,7
quiet
[ "$(grep -c "^route $routed rows 1 row [0-9]*:\( [0-9]*:[0-9.e-]*\)\{4\}$" \
  "$work/out")" -eq 24 ] || fail "$what: not 24 rows of 1"
grep '^route ' "$work/out" | sed 's/.* row //' | LC_ALL=C sort | uniq -c |
  grep -vq '^ *2 ' && fail "$what: the trace differs between recipes"
MOEPLAN_ROUTE_TRACE=1 run 0 run -c "$small" --rows 7 --json
python3 - "$work/out" "$small" <<'PYTHON' || fail "$what: wrong trace"
import json, struct, sys

report = json.load(open(sys.argv[1]))
data = open(sys.argv[2], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
begin, end = header["expect.router.ids"]["data_offsets"]
rows, k = header["expect.router.ids"]["shape"]
ids = struct.unpack("<%di" % (rows * k), data[8 + length + begin:8 + length + end])
dense, routed = report["results"]
assert "trace" not in dense
assert len(routed["trace"]) == rows
for i, row in enumerate(routed["trace"]):
    assert sorted(row["ids"]) == list(ids[i * k:(i + 1) * k]), i
    assert len(row["weights"]) == k and all(w > 0 for w in row["weights"]), i
PYTHON
MOEPLAN_ROUTE_TRACE=yes refuse 2 "MOEPLAN_ROUTE_TRACE=yes" run -c "$small"

# Files without inputs or expectations.
for kind in no_x no_expect; do
  spoil $kind.safetensors $kind
  run 0 run --checkpoint "$work/$kind.safetensors" --rows 3,30
  [ "$(grep -c '^model\..* -  *-$' "$work/out")" -eq 4 ] ||
    fail "$what: not 4 lines without comparisons"
  run 0 run --checkpoint "$work/$kind.safetensors" --json --rows 1
  grep -q '"error": null' "$work/out" || fail "$what: error is not null"
done
run 0 run --checkpoint "$work/no_x.safetensors"
says pseudo-random
[ "$(grep -c '^model\.' "$work/out")" -eq 6 ] || fail "$what: not 6 lines"

# The default row counts, each once.
spoil eight.safetensors eight_rows
run 0 run --checkpoint "$work/eight.safetensors" --site $dense --json
check_json $dense 1,2,8

# Results that are wrong: the table first, then the sentence.
spoil wrong.safetensors reference
run 1 run --checkpoint "$work/wrong.safetensors" --rows 1,24
says "$routed"
grep -q "^cannot confirm site $routed at 1 rows of .*wrong.*at most 0.0040" \
  "$work/err" || fail "$what: does not say what failed"
grep -q '(2 of 4 results fail)' "$work/err" || fail "$what: wrong count"
spoil wrong.safetensors nan_reference
run 1 run --checkpoint "$work/wrong.safetensors" --rows 24 --json
grep -q '"passed": false' "$work/out" || fail "$what: a NaN passes"
spoil wrong.safetensors ids
run 1 run --checkpoint "$work/wrong.safetensors" --rows 5
says "1 of 24 rows differ"
grep -q "^cannot confirm site $routed .*routing" "$work/err" ||
  fail "$what: does not name the routing"

# Bad files.
for entry in "nan:$routed.experts.5.up_proj.weight_scale: expected" \
  "negative:$routed.experts.5.down_proj.weight_scale: expected" \
  "missing:$routed.experts.5.gate_proj.weight: expected" \
  "shape:$dense.up_proj.weight: expected BF16 [512, 256], found BF16 [256, 512]" \
  "dtype:$routed.gate.weight: expected BF16 [16, 256], found F16 [16, 256]" \
  "odd:expected an address that is a multiple of 2" \
  "limit:swiglu_limit"; do
  spoil bad.safetensors "${entry%%:*}"
  refuse 1 "${entry#*:}" run --checkpoint "$work/bad.safetensors" --rows 1
  refuse 1 "${entry#*:}" run --checkpoint "$work/bad.safetensors" --json
done
: >"$work/empty"
refuse 1 "$work/empty: expected" run --checkpoint "$work/empty"
refuse 1 "found a directory" print --checkpoint "$work"
mkfifo "$work/pipe"
refuse 1 "$work/pipe: expected a file, found a pipe" run --checkpoint "$work/pipe"
refuse 1 "found a pipe" run --checkpoint "$small" --config "$work/pipe"
refuse 1 "$work/none" run --checkpoint "$work/none"
head -c 1000000 "$small" >"$work/short"
refuse 1 "expected ascending offsets" run --checkpoint "$work/short"
refuse 1 "$dense .. $routed" run --checkpoint "$small" --site model.layers.7.mlp

# Bad arguments and variables.
refuse 2 "--checkpoint" run
refuse 2 '""'
refuse 2 walk walk --checkpoint "$small"
refuse 2 --frobnicate run --checkpoint "$small" --frobnicate
refuse 2 --rows run --checkpoint "$small" --rows
refuse 2 stray run --checkpoint "$small" stray
refuse 2 --json print --checkpoint "$small" --json
for rows in "" 0 "1,,2" "1," ",1" 1x -1 +1 1.5 1048577 99999999999999999999; do
  refuse 2 "cannot use --rows $rows" run --checkpoint "$small" "--rows=$rows"
done
for device in gpu cuda cuda: cuda:x cuda:-1 cuda:99999 Host ""; do
  refuse 2 "--device $device" run --checkpoint "$small" "--device=$device"
done
MOEPLAN_ROW_BATCH_MAX=9 refuse 2 'MOEPLAN_ROW_BATCH_MAX="9"' run --checkpoint "$small"
MOEPLAN_RECIPE=decode refuse 2 "recipe decode" run -c "$small" --site $dense
MOEPLAN_RECIPE=cake refuse 2 cake print --checkpoint "$small"

# The rest.
run 0 print --checkpoint "$small" --rows 1,9
quiet
[ "$(grep -c '^site model\.' "$work/out")" -eq 4 ] || fail "$what: not 4 sites"
run 0 --version
grep -Eq '^moeplan [0-9]+\.[0-9]+\.[0-9]+.*, numerics [0-9]+$' "$work/out" ||
  fail "$what: no versions"
for command in "" run print inspect plan; do
  # shellcheck disable=SC2086
  run 0 $command --help
  says Usage
  quiet
done
if [ -w /dev/full ]; then
  "$tool" --version >/dev/full 2>"$work/err" && fail "a full disk goes unseen"
  grep -q '^cannot write' "$work/err" || fail "a full disk goes unsaid"
fi

[ "$failures" -eq 0 ] || exit 1
echo "tool_test: all passed"
