#!/bin/sh
# The paper's main results in an experiment of a minute on two cores: what is robust at that size.
# usage: paper_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"
run 0 reproduce --out "$work/paper" --data strokes:classes=200,train=50,test=10,size=16 --steps 1200 \
  --model convnet:16/2,32/2,64/2,pool,128,128 \
  --arms iid-batchnorm,micro4-batchnorm,micro4-renorm,blocks-batchnorm,blocks-renorm
cat "$work/out"
python3 - "$work/paper/results.json" <<'END' || fail "the figures are not those of the paper"
import json, sys
arms = {arm["name"]: arm for arm in json.load(open(sys.argv[1]))["arms"]}
test = {name: arm["test_accuracy"]["mean"] for name, arm in arms.items()}
batch_statistics = arms["blocks-batchnorm"]["batch_statistics_accuracy"]["mean"]
assert test["micro4-renorm"] > test["micro4-batchnorm"], test
assert test["blocks-batchnorm"] < test["iid-batchnorm"] - 5, test
assert batch_statistics > test["blocks-batchnorm"], (batch_statistics, test)
assert test["blocks-renorm"] > test["blocks-batchnorm"], test
END
[ "$failures" -eq 0 ]
