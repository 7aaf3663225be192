#!/bin/sh
# `renorm train` on images in folders, from outside: six small steps.
# usage: images_test.sh RENORM
set -u
renorm=$1
here=$(dirname "$0")
. "$here/lib.sh"
RENORM_CACHE=$work/cache
export RENORM_CACHE
set=$work/set
for class in ant bee cat; do
  python3 "$here/make_images.py" images "$set/train/$class" 9
  python3 "$here/make_images.py" images "$set/val/$class" 3
done

# train CODE DIR ARGUMENT...
train() {
  expected=$1
  folder=$2
  shift 2
  run "$expected" train --out "$folder" --data "folder:$set" --model "${model:-resnet-small}" --image-size 16 --minibatch 8 \
    --steps 6 --eval-every 3 --log-every 1 --threads 1 "$@"
}

# tries DIR ARGUMENT...: as train, with any exit code, which is in $code.
tries() {
  folder=$1
  shift
  "$renorm" train --out "$folder" --data "folder:$set" --model "${model:-resnet-small}" --image-size 16 --minibatch 8 \
    --steps 6 --eval-every 3 --log-every 1 --threads 1 "$@" >"$work/out" 2>"$work/err"
  code=$?
}

# fails CODE DIR ARGUMENT...: as train, for a run that fails after its start: the last line is the error.
fails() {
  expected=$1
  shift
  tries "$@"
  [ "$code" -eq "$expected" ] || fail "renorm train $*: exit code $code instead of $expected"
}

same() {
  for file in model average optimizer; do
    cmp "$1/checkpoints/last/$file.safetensors" "$2/checkpoints/last/$file.safetensors" ||
      fail "$file.safetensors of $1 and $2 differ"
  done
}

# skipped DIR: the number of skipped images in the last step's record.
skipped() {
  python3 - "$1/metrics.jsonl" <<'END'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])]
print([record["skipped_images"] for record in records if record["kind"] == "step"][-1])
END
}

train 0 "$work/run"
cp "$work/out" "$work/trained"
[ "$(skipped "$work/run")" = 0 ] || fail "images were skipped in a whole set"
grep -q '"ant"' "$work/run/checkpoints/last/state.json" || fail "state.json does not name the classes"
run 0 eval "$work/run"
accuracy=$(sed -n 's/^averaged weights *\([0-9.]*\) %.*/\1/p' "$work/out")
grep -qF "$accuracy %" "$work/trained" || fail "eval gives $accuracy %, training printed something else"

# Neither the number of loader threads nor a stop in between changes a byte.
train 0 "$work/loaders" --loader-threads 3
same "$work/run" "$work/loaders"
cp -r "$work/run" "$work/cut"
rm -r "$work/cut/checkpoints/step-000000006"
run 0 train --out "$work/cut" --resume --loader-threads 2
same "$work/run" "$work/cut"
train 0 "$work/other" --seed 2
if cmp -s "$work/run/checkpoints/last/model.safetensors" "$work/other/checkpoints/last/model.safetensors"; then
  fail "another seed gave the same weights"
fi

# Activations of another type, another layout, weights to start from.
# bf16 is refused where a measurement finds it useless, so the CPU decides which of the two is tested.
# tries_bf16 DIR: sets `code`, checks a refusal, and sets `refused` to "slow", "none" or "".
tries_bf16() {
  tries "$1" --dtype bf16
  refused=
  [ "$code" -ne 0 ] || return 0
  [ "$code" -eq 2 ] || fail "a refused bf16 ends with $code instead of 2"
  [ ! -e "$1" ] || fail "a refused run left a folder"
  if grep -q "are not available" "$work/err"; then
    refused=none
    complains "bfloat16 convolutions are not available on this machine; leave out --dtype bf16"
    if grep -q "force" "$work/err"; then fail "a run that LibTorch refuses cannot be forced"; fi
  else
    refused=slow
    complains " on this machine; leave out --dtype bf16, or add --force-bf16"
  fi
}
tries_bf16 "$work/bf16"
[ "$refused" != slow ] || train 0 "$work/bf16" --dtype bf16 --force-bf16
# oneDNN of an older CPU: a run that began elsewhere goes on, or ends with advice that can be followed.
export DNNL_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX2
tries_bf16 "$work/restricted"
if [ -e "$work/bf16" ]; then
  rm -r "$work/bf16/checkpoints/step-000000006"
  "$renorm" train --out "$work/bf16" --resume --quiet >"$work/out" 2>"$work/err"
  code=$?
  if [ "$refused" = none ]; then
    [ "$code" -eq 2 ] || fail "a run without bfloat16 ends with $code instead of 2"
    complains "continue the run on another one, or without DNNL_MAX_CPU_ISA and ONEDNN_MAX_CPU_ISA if they are set"
  else
    [ "$code" -eq 0 ] || fail "a bf16 run does not go on"
    [ -z "$refused" ] || complains " on this machine"
  fi
  # It is evaluated in float then, with one note.
  for command in eval predict; do
    image=
    [ $command = eval ] || image=$set/val/ant/00.png
    run 0 $command "$work/bf16" ${image:+"$image"}
    [ "$(grep -c "; the run is evaluated in float" "$work/err")" -eq $((${#refused} > 0)) ] ||
      fail "$command: not one note of float where bfloat16 is refused"
  done
fi
unset DNNL_MAX_CPU_ISA ONEDNN_MAX_CPU_ISA
train 0 "$work/last" --memory-format channels-last
train 0 "$work/init" --init "$work/run/checkpoints/last/model.safetensors"
fails 66 "$work/init2" --init "$work/nothing"
complains "$work/nothing"
echo "no tensors" >"$work/text"
fails 65 "$work/init3" --init "$work/text"
complains "$work/text"
model=convnet:8/2 fails 65 "$work/init4" --init "$work/run/checkpoints/last/model.safetensors"
complains "model.safetensors"

# Flags for folders of images are refused with other data.
run 2 train --out "$work/none" --data strokes --image-size 32
complains "--image-size has no effect with --data strokes"
run 2 train --out "$work/none" --data "folder:$set" --val-fraction 0.5
run 66 train --out "$work/none" --data "folder:$work/nowhere"
complains "$work/nowhere"

# A bad image ends the run, or is skipped and counted.
printf 'no image' >"$set/train/bee/03.png"
fails 65 "$work/bad"
complains "bee/03.png"
train 0 "$work/skip" --on-bad-image skip
[ "$(skipped "$work/skip")" -ge 1 ] || fail "the bad image was not counted"
train 0 "$work/skip_loaders" --on-bad-image skip --loader-threads 3
same "$work/skip" "$work/skip_loaders"

# A run that a bad image stopped continues with --on-bad-image skip.
fails 65 "$work/stopped" --checkpoint-every 1 --seed 3
run 0 train --out "$work/stopped" --resume --on-bad-image skip --loader-threads 2
[ "$(skipped "$work/stopped")" -ge 1 ] || fail "the bad image was not counted after --resume"

# Evaluation elsewhere goes by the names of the classes.
for class in ant bee cow; do python3 "$here/make_images.py" images "$work/cows/$class" 4; done
run 2 eval "$work/run" --data "folder:$work/cows" --val-fraction 0.5
complains "is 'cow'"
mv "$work/cows/cow" "$work/cows/cat"
run 0 eval "$work/run" --data "folder:$work/cows" --val-fraction 0.5
run 2 eval "$work/run" --data strokes --val-fraction 0.5
run 2 eval "$work/run" --threads -3
for class in ant bee cat; do
  cp -r "$set/val/$class" "$work/val.$class"
  for file in "$set/val/$class"/*; do echo text >"$file"; done
done
fails 65 "$work/blind" --on-bad-image skip
complains "none of the 9 images to evaluate on can be read"
for class in ant bee cat; do
  rm -r "$set/val/$class"
  mv "$work/val.$class" "$set/val/$class"
done

# A run continues only with the images it began with.
rm -r "$work/cut/checkpoints/step-000000006"
mv "$set/train/ant/00.png" "$set/train/ant/zz.png"
fails 65 "$work/cut" --resume
complains "is not what the run in"

# One class is allowed, with a note also if the run is quiet.
for split in train val; do python3 "$here/make_images.py" images "$work/single/$split/ant" 8; done
set=$work/single train 0 "$work/one" --quiet
complains "has one class only, so every prediction is right"

# Class names that are no UTF-8 are different in every file.
for class in "$(printf '\376')" "$(printf '\377')"; do
  for split in train val; do python3 "$here/make_images.py" images "$work/bytes/$split/$class" 8; done
done
set=$work/bytes train 0 "$work/latin" --quiet
run 0 eval "$work/latin" --json "$work/latin.json"
python3 - "$work" <<'END' || fail "class names that are no UTF-8 are lost"
import json, sys
names = ["\\xfe", "\\xff"]
state = json.load(open(sys.argv[1] + "/latin/checkpoints/last/state.json"))
assert state["data"]["classes"] == names, state["data"]["classes"]
result = json.load(open(sys.argv[1] + "/latin.json"))
assert [entry["name"] for entry in result["per_class"]] == names, result["per_class"]
END

[ "$failures" -eq 0 ] || exit 1
echo "all passed"
