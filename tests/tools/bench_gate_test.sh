#!/bin/sh
# tools/bench-gate with programs that report invented times instead of measuring.
# usage: bench_gate_test.sh BENCH_GATE
set -u
gate=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# build NAME FORWARD BACKWARD [LATER]: a program with these times in milliseconds; from its third run on, its
# forward time is LATER.
build() {
  cat >"$work/$1" <<END
#!/bin/sh
[ "\$1 \$2 \$3 \$4" = "bench layer --quick --json" ] || exit 2
echo run >>"$work/$1.runs"
forward=$2
[ "\$(wc -l <"$work/$1.runs")" -lt 3 ] || forward=${4:-$2}
cat >"\$5" <<JSON
{"cases": [{"shape": [32, 64, 7, 7], "layout": "nchw", "megabytes": 0.4,
  "forward": {"ours": {"best_ms": \$forward}, "native": {"best_ms": 9.0}}, "backward": {"ours_relu": {"best_ms": $3}}}]}
JSON
END
  chmod +x "$work/$1"
}

# expect CODE TEXT ARGUMENT...: the gate ends with CODE and prints TEXT.
expect() {
  expected=$1
  text=$2
  shift 2
  rm -f "$work"/*.runs
  "$gate" "$@" >"$work/out" 2>&1
  code=$?
  [ "$code" -eq "$expected" ] && grep -qF -e "$text" "$work/out" && return
  echo "FAILED: bench-gate $*: exit code $code instead of $expected, or no '$text' in:"
  sed 's/^/  /' "$work/out"
  failures=$((failures + 1))
}

build old 1.00 2.00
build same 1.04 1.90
build slower 1.06 1.90
build unsteady 1.50 1.90 1.01
expect 0 "0 of 2 times" "$work/old" "$work/same"
expect 0 "after 2 rounds" "$work/old" "$work/same"
expect 1 "32x64x7x7 nchw forward ours" "$work/old" "$work/slower"
expect 1 "1 of 2 times are more than 5 % above the old ones, after 10 rounds" "$work/old" "$work/slower"
# The best of more rounds decides.
expect 0 "after 3 rounds" "$work/old" "$work/unsteady"
expect 1 "ended with code" "$work/old" false
expect 1 usage "$work/old"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
