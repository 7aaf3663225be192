#!/bin/sh
# The renorm command from outside: what it prints, where, and with which exit code.
# usage: cli_test.sh RENORM VERSION
set -u
renorm=$1
version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  sed 's/^/  stdout: /' "$work/out"
  sed 's/^/  stderr: /' "$work/err"
  failures=$((failures + 1))
}

# run CODE ARGUMENT...: the command ends with CODE. An error is one line on standard error and nothing on
# standard output; success leaves standard error empty.
run() {
  expected=$1
  shift
  "$renorm" "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ "$code" -eq "$expected" ] || fail "renorm $*: exit code $code instead of $expected"
  if [ "$expected" -eq 0 ]; then
    [ ! -s "$work/err" ] || fail "renorm $*: something on standard error"
  else
    [ ! -s "$work/out" ] || fail "renorm $*: something on standard output"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "renorm $*: the error is not one line"
  fi
}

# prints TEXT / complains TEXT: the latest run wrote TEXT to standard output / standard error.
prints() { grep -qF -e "$1" "$work/out" || fail "standard output lacks '$1'"; }
complains() { grep -qF -e "$1" "$work/err" || fail "standard error lacks '$1'"; }

run 0 --help
prints bench
prints demo
run 0 --version
prints "renorm $version"
prints LibTorch
prints SIMD
run 0 bench layer --help
for flag in --quick --threads --shapes --json; do prints "$flag"; done
run 0 demo --help
for flag in --steps --seed; do prints "$flag"; done

run 2
complains "needs a command: bench, demo"
run 2 bench
complains "needs a command: layer"
run 2 bnch
complains "did you mean 'bench'?"
run 2 bench lair
complains "did you mean 'layer'?"
run 2 bench layer --thread 2
complains "did you mean '--threads'?"
run 2 demo --step=3
complains "did you mean '--steps'?"
run 2 demo now
complains "'renorm demo' has no command 'now'"
run 2 demo --steps 0
complains "--steps must be"
run 2 demo --steps three
complains "--steps"
run 2 bench layer --threads 0
complains "--threads must be"
run 2 bench layer --shapes 32xmany
complains "32xmany"
run 2 bench layer --shapes 32x8x8
complains "32x8x8"

# Found out before measuring: a measurement of these shapes would take minutes.
run 73 bench layer --json "$work/missing/figures.json"
complains "$work/missing/figures.json"
run 73 bench layer --json "$work"
complains "not a regular file"

run 0 demo --steps 3
prints "test accuracy"
prints "Batch Renorm"
prints "Biased minibatches cost batchnorm"

run 0 bench layer --quick --shapes 32x64,8x16x6x6 --json "$work/figures.json"
prints "dense forward"
prints "nhwc backward"
python3 - "$work/figures.json" <<'EOF' || fail "the JSON of bench layer lacks something"
import json, math, sys
figures = json.load(open(sys.argv[1]))
with_onednn = bool(figures["machine"]["onednn"])
ratios = ["native", "native_relu", "tensor_ops", "copy_multiple", "copy_multiple_shipped"]
for layout in ["nchw", "nhwc", "dense"]:
    for part in ["forward", "backward", "inference"]:
        wanted = ratios + (["onednn"] if with_onednn else [])
        if with_onednn and layout == "nchw":
            wanted = wanted + ["onednn_blocked"]
        for ratio in wanted:
            value = figures["geomean"][layout][part][ratio]
            assert math.isfinite(value) and value > 0, (layout, part, ratio, value)
case = figures["cases"][0]
assert case["shape"] == [8, 16, 6, 6] and case["layout"] == "nchw", case
forward = case["forward"]
expected = forward["native"]["best_ms"] / forward["ours"]["best_ms"]
assert abs(figures["geomean"]["nchw"]["forward"]["native"] / expected - 1) < 1e-9
assert all(figure["best_ms"] <= figure["median_ms"] for figure in forward.values())
for key in ["cpu", "simd_target", "libtorch"]:
    assert figures["machine"][key], key
assert figures["threads"] == 1
EOF
[ "$(find "$work" -name '*.tmp.*' | wc -l)" -eq 0 ] || fail "a temporary file was left behind"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
