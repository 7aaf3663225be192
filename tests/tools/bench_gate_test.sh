#!/bin/sh
# tools/bench-gate with programs that report invented times instead of measuring.
# usage: bench_gate_test.sh BENCH_GATE
set -u
gate=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# build NAME FORWARD BACKWARD [LATER]: a program with these times in milliseconds; from its third run on, its
# forward time is LATER. It has no backward time if BACKWARD is "none".
build() {
  backward=", \"backward\": {\"ours_relu\": {\"best_ms\": $3}}"
  [ "$3" != none ] || backward=
  cat >"$work/$1" <<END
#!/bin/sh
[ "\$1 \$2 \$3 \$4" = "bench layer --quick --json" ] || exit 2
echo run >>"$work/$1.runs"
forward=$2
[ "\$(wc -l <"$work/$1.runs")" -lt 3 ] || forward=${4:-$2}
cat >"\$5" <<JSON
{"cases": [{"shape": [32, 64, 7, 7], "layout": "nchw", "megabytes": 0.4,
  "forward": {"ours": {"best_ms": \$forward}, "native": {"best_ms": 9.0}}$backward}]}
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
# A time that only the old build has cannot be compared; one that only the new build has is of no interest.
build fewer 1.00 none
expect 1 "lacks 1 of the 2 times of $work/old, the first is 32x64x7x7 nchw backward ours_relu" "$work/old" "$work/fewer"
expect 0 "0 of 1 times" "$work/fewer" "$work/old"
expect 1 "ended with code" "$work/old" false
expect 1 usage "$work/old"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
