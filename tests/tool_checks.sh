# What the tests of the program share: sourced with TOOL as $1. Sets tool, work, what
# and failures; each test ends with `[ "$failures" -eq 0 ]`.

tool=$1
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/tool_test.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  head -c 2000 "$work/out" "$work/err"
  failures=$((failures + 1))
}

# run STATUS ARGUMENT...: runs the tool and checks its exit status.
run() {
  local wanted=$1 status=0
  shift
  what="moeplan $*"
  timeout 200 "$tool" "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" -eq "$wanted" ] || fail "$what: status $status, not $wanted"
}

# refuse STATUS TEXT ARGUMENT...: one sentence with TEXT, nothing on stdout.
refuse() {
  local wanted=$1 text=$2
  shift 2
  run "$wanted" "$@"
  [ ! -s "$work/out" ] || fail "$what: something on stdout"
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line on stderr"
  grep -q '^cannot ' "$work/err" || fail "$what: does not say \"cannot\""
  grep -qF -- "$text" "$work/err" || fail "$what: does not say \"$text\""
}

says() { grep -qF -- "$1" "$work/out" || fail "$what: no \"$1\" on stdout"; }
omits() { ! grep -qF -- "$1" "$work/out" || fail "$what: \"$1\" on stdout"; }
quiet() { [ ! -s "$work/err" ] || fail "$what: something on stderr"; }
