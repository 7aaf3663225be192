#!/bin/sh
# `renorm reproduce` and `renorm report` from outside: how they start, stop, go on and refuse.
# usage: reproduce_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"

# reproduce CODE DIR ARGUMENT...: a tiny experiment of two arms; blocks-batchnorm has every kind of figure.
reproduce() {
  expected=$1
  folder=$2
  shift 2
  run "$expected" reproduce --out "$folder" --data strokes:classes=40,train=6,test=3,size=12 \
    --model convnet:8/2,16/2 --steps 20 --jobs 2 "$@"
}
small="--arms iid-batchnorm,blocks-batchnorm"

# wait_for COMMAND...: until it succeeds, for two minutes at most.
wait_for() {
  waited=0
  until "$@" || [ $waited -ge 1200 ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
}

# figures FILE: every accuracy of a results.json, without times.
figures() {
  python3 - "$1" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))
for arm in results["arms"]:
    print(arm["name"], arm["test_accuracy"], arm.get("train_accuracy"), arm.get("batch_statistics_accuracy"), arm["curve"])
    print(arm["training"])
print(results["claims"])
END
}

# shellcheck disable=SC2086  # several words
reproduce 0 "$work/a" $small --seeds 2
for text in "iid-batchnorm" "78.3" "On blocks batchnorm loses" "$work/a/results.json" "$work/a/report.html"; do
  prints "$text"
done
complains "blocks-batchnorm, seed 2: starts"
complains "(4 of 4 runs)"
if LC_ALL=C grep -q '[[:cntrl:]]' "$work/out" "$work/err"; then fail "control characters in plain output"; fi
grep -q "</html>" "$work/a/report.html" || fail "the report is not whole"
python3 - "$work/a/results.json" <<'END' || fail "results.json lacks something"
import json, sys
results = json.load(open(sys.argv[1]))
assert results["finished"] and results["seeds"] == [1, 2] and results["versions"]["libtorch"], results
assert [arm["name"] for arm in results["arms"]] == ["iid-batchnorm", "blocks-batchnorm"]
for arm in results["arms"]:
    assert len(arm["test_accuracy"]["values"]) == 2 and len(arm["curve"]) == 10 and arm["training"], arm
    assert arm["curve"][-1]["values"] == arm["test_accuracy"]["values"], arm
assert "train_accuracy" not in results["arms"][0]
for measure in ("train_accuracy", "batch_statistics_accuracy"):
    assert len(results["arms"][1][measure]["values"]) == 2
assert all(claim["text"] and claim["verdict"] for claim in results["claims"]) and results["claims"]
END

# Finished runs are not run again; --json prints the file.
before=$(state "$work/a/runs")
# shellcheck disable=SC2086
reproduce 0 "$work/a" $small --seeds 2 --json
complains "4 of 4 runs were finished before"
[ "$before" = "$(state "$work/a/runs")" ] || fail "a finished run was touched"
cmp "$work/out" "$work/a/results.json" || fail "--json prints something else than results.json"

# The same seeds give the same figures to the last digit, also when the experiment was killed and went on, and
# when other arms run beside them.
"$renorm" reproduce --out "$work/b" --data strokes:classes=40,train=6,test=3,size=12 --model convnet:8/2,16/2 \
  --steps 20 --jobs 1 --arms iid-batchnorm >"$work/out" 2>"$work/err" &
victim=$!
wait_for test -e "$work/b/runs/iid-batchnorm/seed-1/config.toml"
kill -KILL $victim
wait $victim 2>/dev/null
# Its child saves a checkpoint and ends.
wait_for flock -n "$work/b/runs/iid-batchnorm/seed-1/lock" true
reproduce 0 "$work/b" --seeds 2 --arms iid-batchnorm
# shellcheck disable=SC2086
reproduce 0 "$work/b" $small --seeds 2
figures "$work/a/results.json" >"$work/figures_a"
figures "$work/b/results.json" >"$work/figures_b"
cmp "$work/figures_a" "$work/figures_b" || fail "the same experiment gave other figures"

# Stopped by a signal, it prints how to continue, and no child is left.
"$renorm" reproduce --out "$work/c" --data strokes:classes=40,train=6,test=3,size=12 --model convnet:8/2,16/2 \
  --steps 100000 --jobs 2 >"$work/out" 2>"$work/err" &
victim=$!
# Before its first step a run has nothing to save, and the two start in either order.
for arm in iid-batchnorm iid-renorm; do wait_for test -s "$work/c/runs/$arm/seed-1/metrics.jsonl"; done
kill -TERM $victim
wait $victim
code=$?
[ $code -eq 75 ] || fail "exit code $code after SIGTERM instead of 75"
complains "stopped; the same command continues"
flock -n "$work/c/runs/iid-renorm/seed-1/lock" true || fail "a child is left after SIGTERM"
for arm in iid-batchnorm iid-renorm; do
  [ -e "$work/c/runs/$arm/seed-1/checkpoints/last" ] || fail "$arm did not save itself after SIGTERM"
done
# Another experiment in its place: it ends, and leaves the other as it is.
"$renorm" reproduce --out "$work/g" --data strokes:classes=40,train=6,test=3,size=12 --model convnet:8/2,16/2 \
  --steps 100000 --jobs 2 >"$work/out" 2>"$work/err" &
victim=$!
for arm in iid-batchnorm iid-renorm; do wait_for test -s "$work/g/runs/$arm/seed-1/metrics.jsonl"; done
mv "$work/g" "$work/moved"
cp -r "$work/a" "$work/g"
wait $victim
code=$?
[ $code -eq 74 ] || fail "exit code $code in a replaced folder instead of 74"
complains "renorm: '$work/g/lock' was deleted or replaced by another process"
[ "$(state "$work/a")" = "$(state "$work/g")" ] || fail "another experiment was changed"
flock -n "$work/moved/runs/iid-renorm/seed-1/lock" true || fail "a child is left in a replaced folder"

# A report of an unfinished experiment.
run 0 report "$work/c"
grep -q "</html>" "$work/c/report.html" || fail "no report of an unfinished experiment"

# Reports of runs of the trainer, and of results without their runs.
run 0 report "$work/a/runs/iid-batchnorm/seed-1" "$work/a/runs/blocks-batchnorm/seed-1" --out "$work/two.html"
grep -q "</html>" "$work/two.html" || fail "no report of two runs"
# Several experiments are compared; experiments and runs are not mixed.
run 0 report "$work/a" "$work/b"
prints "$work/a/comparison.html"
run 0 report "$work/a" "$work/b" --out "$work/both.html"
grep -q "iid-batchnorm (a)" "$work/both.html" || fail "a comparison lacks an arm"
grep -q "b − a" "$work/both.html" || fail "a comparison lacks the differences"
run 2 report "$work/a" "$work/a/runs/iid-batchnorm/seed-1" --out "$work/mixed.html"
complains "not both; '$work/a/runs/iid-batchnorm/seed-1' is one of 'renorm train'"
run 66 report "$work/a" "$work/nothing" --out "$work/mixed.html"
run 2 report "$work/a" "$work/a" --out "$work/mixed.html"
complains "is given twice"
[ ! -e "$work/mixed.html" ] || fail "a refused report was written"
mkdir "$work/recall"
sed 's/"title":/"measure": "recall@1",\n "title":/' "$work/a/results.json" >"$work/recall/results.json"
run 2 report "$work/a" "$work/recall" --out "$work/mixed.html"
complains "'$work/a' has test accuracy and '$work/recall' has recall@1"

mkdir "$work/copied"
cp "$work/a/results.json" "$work/copied"
run 0 report "$work/copied"
[ -s "$work/copied/report.html" ] || fail "no report of copied results"
copied=$(state "$work/copied")

# mnist FOLDER COUNT: a data set of ten labels with COUNT training images.
mnist() {
  mkdir "$1"
  python3 - "$1" "$2" <<'END'
import random, struct, sys
random.seed(1)
for split, count in (("train", int(sys.argv[2])), ("t10k", 100)):
    labels = [i % 10 for i in range(count)]
    pixels = bytes((25 * label + random.randrange(50)) % 256 for label in labels for _ in range(28 * 28))
    with open(f"{sys.argv[1]}/{split}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
    with open(f"{sys.argv[1]}/{split}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 2049, count) + bytes(labels))
END
}

# Data from files: with ten labels the bias is stronger.
mnist "$work/mnist" 200
run 0 reproduce --out "$work/m" --data "mnist:$work/mnist" --model convnet:8/2,16/2 --steps 10 --jobs 2
prints "blocks-renorm"
grep -q '"command": ".*labels:4x8.*--split-pairs' "$work/m/results.json" || fail "ten labels were sampled as many are"

# A refused command changes nothing.
before=$(state "$work/a")
reproduce 2 "$work/a" --arms iid-renom
complains "did you mean 'iid-renorm'"
run 2 reproduce --out "$work/a" --quick
complains "has another experiment"
run 2 reproduce --out "$work/a" --full --quick
run 2 reproduce --out "$work/a" --seeds -3
run 2 reproduce --out "$work/a" --steps -3
run 2 reproduce --out "$work/a" --jobs 0x
[ "$before" = "$(state "$work/a")" ] || fail "a refused command changed the folder"
mkdir "$work/other"
echo thesis >"$work/other/thesis.tex"
reproduce 2 "$work/other"
complains "has other files"
[ "$(ls "$work/other")" = thesis.tex ] || fail "a folder with other files was changed"
# shellcheck disable=SC2086
reproduce 2 "$work/copied" $small --seeds 2
complains "results without their runs"
[ "$(state "$work/copied")" = "$copied" ] || fail "results without their runs were changed"
printf '{"format_version": 1, "na' >"$work/copied/results.json"
before=$(state "$work/copied")
# shellcheck disable=SC2086
reproduce 65 "$work/copied" $small --seeds 2
complains "copied/results.json"
run 65 report "$work/copied"
[ "$before" = "$(state "$work/copied")" ] || fail "damaged results were overwritten"
run 66 report "$work/other"
run 66 report "$work/nothing"
run 2 report
reproduce 73 /proc/renorm
run 66 reproduce --out "$work/d" --data "mnist:$work/nothing"
reproduce 0 "$work/d" --arms iid-batchnorm
# An experiment that failed before its first step does not block another.
"$renorm" reproduce --out "$work/e" --model convnet:0 --arms iid-batchnorm >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 2 ] || fail "exit code $code for a model that does not exist instead of 2"
complains "renorm: iid-batchnorm, seed 1: convnet:"
reproduce 0 "$work/e" --arms iid-batchnorm
mnist "$work/few" 20
"$renorm" reproduce --out "$work/f" --data "mnist:$work/few" --model convnet:8/2,16/2 --steps 10 \
  --arms pairs-batchnorm >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 65 ] || fail "exit code $code for data with too few images instead of 65"
reproduce 0 "$work/f" --arms iid-batchnorm,pairs-batchnorm
run 0 report "$work/f"

[ "$failures" -eq 0 ] || exit 1
echo "reproduce and report: all as they should be"
