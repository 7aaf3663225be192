#!/bin/sh
# `renorm train` and `renorm eval` from outside, on a run of 20 small steps.
# usage: train_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"
# 30 test images, so that most accuracies have many digits.
data=strokes:classes=10,train=20,test=3,size=12

# train CODE DIR ARGUMENT...: the run of all tests below.
train() {
  expected=$1
  folder=$2
  shift 2
  run "$expected" train --out "$folder" --data $data --model convnet:8/2,16/2 --workers 2 --minibatch 10 \
    --steps 20 --optimizer sgd --lr 0.3 --momentum 0.9 \
    --norm-momentum 0.2 --log-every 1 --eval-every 10 --threads 1 "$@"
}

# same ONE OTHER: the last checkpoints of two runs have the same bytes of weights, averages and optimizer.
same() {
  for file in model average optimizer; do
    cmp "$1/checkpoints/last/$file.safetensors" "$2/checkpoints/last/$file.safetensors" ||
      fail "$file.safetensors of $1 and $2 differ"
  done
}

# The run, with output that is no terminal.
train 0 "$work/run"
prints "test accuracy"
prints "renorm eval $work/run"
for text in "making data: 230 images" "convnet:8/2,16/2" "$data" "2 x 10 = 20 images" "sgd, learning rate 0.3" \
  "step 20/20" "r_max" "images/s" "saved $work/run/checkpoints/step-000000010"; do
  complains "$text"
done
grep -qE '^step 10/20 .*saved .*/step-000000010  in [0-9.]+ s$' "$work/err" || fail "no duration of a checkpoint"
if LC_ALL=C grep -q '[[:cntrl:]]' "$work/out" "$work/err"; then fail "control characters in plain output"; fi
# The schedule begins with a hold of one step, in which everything is clipped by definition.
grep '^step 1/20 ' "$work/err" | grep 'r_max 1.00' | grep 'd_max 0.00' | grep -q ' hold ' || fail "no hold in step 1"
if grep '^step 1/20 ' "$work/err" | grep -q clipped; then fail "clipped fractions in the hold"; fi
grep '^step 20/20 ' "$work/err" | grep -q 'clipped r [0-9.]* %  d [0-9.]* %' || fail "no clipped fractions in step 20"
cp "$work/out" "$work/trained_out"
cp "$work/err" "$work/trained_err"

python3 - "$work/run" <<'END' || fail "metrics.jsonl or summary.csv lacks something"
import csv, json, math, sys
lines = open(sys.argv[1] + "/metrics.jsonl").read().splitlines()
records = [json.loads(line) for line in lines]
steps = [record for record in records if record["kind"] == "step"]
evaluations = [record for record in records if record["kind"] == "evaluation"]
assert len(steps) + len(evaluations) == len(records)
assert [record["step"] for record in steps] == list(range(1, 21))
assert [record["step"] for record in evaluations] == [10, 20]
for record in steps:
    for key in ["loss", "accuracy", "learning_rate", "r_max", "d_max", "images_per_second"]:
        assert math.isfinite(record[key]), (key, record[key])
    assert len(record["layers"]) == 2
    for key in ["r_clipped_above", "r_clipped_below", "d_clipped"]:
        assert 0.0 <= record[key] <= 1.0, (key, record[key])
assert steps[0]["r_clipped_above"] + steps[0]["r_clipped_below"] > 0.9, steps[0]
rows = list(csv.DictReader(open(sys.argv[1] + "/summary.csv")))
assert [int(row["step"]) for row in rows] == [10, 20]
assert [float(row["accuracy"]) for row in rows] == [record["accuracy"] for record in evaluations]
END

# The accuracy that eval prints for a checkpoint is the one that train printed.
for step in 10 20; do
  run 0 eval "$work/run" --checkpoint step-$step --json "$work/eval-$step.json"
  [ ! -s "$work/err" ] || fail "eval: something on standard error"
  accuracy=$(sed -n "s|^step $step/20  test accuracy \([^ ]*\) %.*|\1|p" "$work/trained_err")
  raw=$(sed -n "s|^step $step/20 .* raw weights \([^ ]*\) %.*|\1|p" "$work/trained_err")
  grep -qE -e "^averaged weights +$accuracy % " "$work/out" || fail "step $step: averaged accuracy is not $accuracy"
  grep -qE -e "^raw weights +$raw % " "$work/out" || fail "step $step: raw accuracy is not $raw"
done
grep -qF -e "$accuracy % with averaged weights, $raw % with raw ones" "$work/trained_out" ||
  fail "the result of train is not that of its last evaluation"
python3 - "$work" <<'END' || fail "eval does not give what train recorded"
import json, sys
work = sys.argv[1]
lines = open(work + "/run/metrics.jsonl").read().splitlines()
for record in [json.loads(line) for line in lines]:
    if record["kind"] != "evaluation":
        continue
    again = json.load(open("%s/eval-%d.json" % (work, record["step"])))
    for key in ["accuracy", "loss", "raw_accuracy", "raw_loss", "images", "step", "split"]:
        assert again[key] == record[key], (record["step"], key, again[key], record[key])
    assert again["batch_statistics"] is False and again["sampler"] is None
    assert sum(entry["images"] for entry in again["per_class"]) == 30
    correct = sum(entry["correct"] for entry in again["per_class"])
    assert 100.0 * correct / 30 == again["accuracy"]
END

# The other ways to evaluate; none changes the run.
before=$(state "$work/run")
run 0 eval "$work/run" --checkpoint best --split train --per-class
prints "200 images of the train split"
prints "class "
run 0 eval "$work/run" --batch-statistics --sampler labels:5x2 --json -
python3 - "$work/out" <<'END' || fail "the JSON of eval --batch-statistics lacks something"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["batch_statistics"] is True and report["sampler"] == "labels:5x2", report
assert report["images"] == 30 and 0 <= report["accuracy"] <= 100
END
run 0 eval "$work/run" --data "$data,seed=2"
prints "seed=2"
run 2 eval "$work/run" --data strokes:classes=11,train=20,test=3,size=12
complains "11 classes"
run 66 eval "$work/run" --checkpoint step-15
complains "15"
run 73 eval "$work/run" --json "$work/missing/figures.json"
complains "$work/missing/figures.json"
[ "$before" = "$(state "$work/run")" ] || fail "eval changed the run"

# A finished run is finished.
cp -R "$work/run" "$work/copy"
train 0 "$work/copy" --resume
complains "finished"
prints "test accuracy"
same "$work/run" "$work/copy"
[ "$(grep -c '"kind":"step"' "$work/copy/metrics.jsonl")" -eq 20 ] || fail "resuming a finished run added records"

# Its config is the run.
run 0 train --config "$work/run/config.toml" --out "$work/again" --quiet
[ ! -s "$work/err" ] || fail "train --quiet: something on standard error"
prints "test accuracy"
same "$work/run" "$work/again"

# Flags win over the file, also with the length in the other unit.
printf 'data = "%s"\nmodel = "convnet:8/2,16/2"\nsteps = 50\nlr = 0.5\nnorm-scale = true\n' $data >"$work/base.toml"
run 0 train --config "$work/base.toml" --out "$work/flags" --epochs 0.5 --minibatch 10 --lr 0.125 \
  --norm-scale=false --norm batchnorm --ema-decay 0 --quiet
for line in "steps = 10" "lr = 0.125" "norm-scale = false" 'norm = "batchnorm"'; do
  grep -qxF -e "$line" "$work/flags/config.toml" || fail "config.toml lacks '$line'"
done
run 0 eval "$work/flags"
prints "weights  "

# A reader that closes the pipe after a few lines does not end the run.
{
  "$renorm" train --out "$work/piped" --config "$work/run/config.toml" --log-every 1 2>&1 >"$work/out"
  echo $? >"$work/code"
} | head -n 1 >"$work/err"
[ "$(cat "$work/code")" -eq 0 ] || fail "a closed standard error: exit code $(cat "$work/code") instead of 0"
same "$work/run" "$work/piped"

# A refused command changes nothing.
before=$(state "$work/run")
train 2 "$work/run"
complains "$work/run"
complains "--resume"
train 2 "$work/run" --resume --seed 2
complains "--seed"
mkdir "$work/other"
echo precious >"$work/other/file"
train 2 "$work/other"
complains "$work/other"
[ "$(cat "$work/other/file")" = precious ] || fail "a file in a folder that holds no run was changed"
train 73 "$work/other/file/run"
complains "$work/other/file/run"
train 73 /proc/renorm-run
complains "/proc/renorm-run"
run 66 train --out "$work/new" --data "mnist:$work/none"
complains "$work/none"
mkdir "$work/mnist"
for file in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
  echo "no idx file" >"$work/mnist/$file-ubyte"
done
run 65 train --out "$work/new" --data "mnist:$work/mnist"
complains "$work/mnist/"
run 65 train --out "$work/new" --data $data --sampler labels:5x30
complains "30"
run 66 train --out "$work/new" --data "mnist:$work/none"
[ "$before" = "$(state "$work/run")" ] || fail "a refused command changed the run"

# Nothing to resume, and no settings of a run to start.
for folder in "$work/nothing" "$work/other"; do
  run 66 train --resume --out "$folder"
  complains "there is no run to resume in '$folder'; check --out, or start a run without --resume"
done
run 66 train --resume --out "$work/nothing" --keep 5 --quiet
[ ! -e "$work/nothing" ] || fail "a resume without a run made a folder"

# A run that failed before its first step keeps its settings and blocks no other.
run 66 train --resume --out "$work/new"
complains "$work/none"
train 0 "$work/new" --quiet
same "$work/run" "$work/new"
train 0 "$work/started" --resume --quiet
same "$work/run" "$work/started"

# Divergence has an exit code of its own: it is no defect of the program.
run 76 train --out "$work/diverged" --data $data --model convnet:8/2,16/2 --minibatch 10 --steps 20 \
  --optimizer sgd --lr 1000 --weight-decay 10 --threads 1 --quiet
complains "not finite"
[ "$(grep -oE 'step [0-9]+' "$work/err" | wc -l)" -eq 1 ] || fail "divergence: not one number of a step"

# One image per group needs layers with several positions.
run 2 train --out "$work/single" --data $data --model convnet:8/2,pool,16 --minibatch 1 --steps 2 --threads 1 --quiet
complains "--minibatch must be at least 2 with --model convnet:8/2,pool,16"
run 2 train --out "$work/single" --data $data --model convnet:8/2,pool,16 --minibatch 4 --microbatch 1 --steps 2 \
  --threads 1 --quiet
complains "--microbatch must be at least 2"
for norm in renorm batchnorm native; do
  run 0 train --out "$work/single-$norm" --data $data --model convnet:8/2,16/2 --minibatch 1 --steps 2 --norm $norm \
    --threads 1 --quiet
done
run 0 train --out "$work/pooled" --data $data --model convnet:8/2,pool,16 --minibatch 4 --steps 2 --threads 1 --quiet
run 2 eval "$work/pooled" --batch-statistics --sampler labels:1x1
complains "--batch-statistics needs minibatches of at least 2 images"
run 0 eval "$work/pooled" --batch-statistics

# bfloat16 is measured before the number of threads is settled.
run 0 train --out "$work/bf16" --data $data --model convnet:8/2,16/2 --minibatch 10 --steps 2 --dtype bf16 --force-bf16

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
