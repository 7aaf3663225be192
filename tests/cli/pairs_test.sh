#!/bin/sh
# The paper's 16 x 2 minibatches in an experiment of a minute on two cores: batchnorm learns to use the partner of an
# image and fails without it; Batch Renorm does not.
# usage: pairs_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"
data=strokes:classes=20,train=200,test=100,ink=1,jitter=0.25,decoy=0.7,decoy-ink=0.9,amplitude=0.15

# trains NAME FLAG...: as the pairs of `renorm reproduce`, with fewer classes and steps and without convolutions.
trains() {
  name=$1
  shift
  "$renorm" train --out "$work/$name" --data "$data" --model mlp:512,512,512 --norm-bias -1.5 --norm-scale \
    --optimizer adamw --lr 3e-3 --beta2 0.99 --lr-schedule cosine --lr-final 0 --warmup 100 --ema-decay 0 \
    --steps 5000 --eval-every 1000 --threads 1 --quiet "$@" >"$work/$name.log" 2>&1 || echo "$name" >>"$work/failed"
}
"$renorm" data "$data" >/dev/null  # the characters are drawn once
trains pairs --norm batchnorm --sampler labels:16x2 &
trains iid --norm batchnorm
wait
trains renorm --sampler labels:16x2 --clip hold:4%,r:3@20%,d:5@20%
[ ! -e "$work/failed" ] || fail "not trained: $(cat "$work/failed"): $(cat "$work"/*.log)"
for name in iid pairs renorm; do run 0 eval "$work/$name" --threads 1 --json "$work/$name.json"; done
run 0 eval "$work/pairs" --threads 1 --batch-statistics --sampler labels:16x2 --json "$work/batch.json"
python3 - "$work" <<'END' || fail "the figures are not those of the paper"
import json, sys
test = {}
for name in ["iid", "pairs", "renorm", "batch"]:
    with open(f"{sys.argv[1]}/{name}.json") as file:
        test[name] = json.load(file)["accuracy"]
print(test)
assert test["pairs"] < test["iid"] - 5, test
assert test["batch"] > test["pairs"], test
assert test["renorm"] > test["pairs"], test
assert test["renorm"] > test["iid"] - 5, test
END
[ "$failures" -eq 0 ]
