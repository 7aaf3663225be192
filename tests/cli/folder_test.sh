#!/bin/sh
# folder:DIR from outside: images in folders, whole and damaged, and invalid folders.
# usage: folder_test.sh RENORM
set -u
renorm=$1
here=$(dirname "$0")
. "$here/lib.sh"
RENORM_CACHE=$work/cache
export RENORM_CACHE

# checks CODE ARGUMENT...: as run, but problems are listed on standard output before the error.
checks() {
  expected=$1
  shift
  "$renorm" data "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ "$code" -eq "$expected" ] || fail "renorm data $*: exit code $code instead of $expected"
  [ "$(wc -l <"$work/err")" -eq $((expected != 0)) ] || fail "renorm data $*: not one line of error"
}

make() { python3 "$here/make_images.py" "$@" || fail "make_images.py $*"; }

good=$work/good
make images "$good/train/ant" 4
make images "$good/train/bee" 3
make images "$good/val/ant" 2
make images "$good/val/bee" 2
echo notes >"$good/train/bee/notes.txt"

checks 0 "folder:$good"
for text in "data set   folder:$good" "classes    2: ant, bee" "training   7 images, 3 to 4 per class" \
  "test       4 images, 2 per class" "others     1 ignored" "to the size that the model is made for" \
  "mean       0.4850, 0.4560, 0.4060" "std        0.2290, 0.2240, 0.2250"; do
  prints "$text"
done
checks 0 "folder:$good" --check --threads 3 --image-size 32
prints "32 x 32 pixels"
prints "check      all 11 images read, no problems found"
checks 0 "folder:$good" --image-size 32 --preview "$work/sheet.png" --preview-images 2
prints "preview    $work/sheet.png"
# Two rows of two images of 32 pixels, each enlarged twice, and 4 pixels between them.
python3 - "$work/sheet.png" <<'PYTHON' || fail "the contact sheet has another size"
import struct, sys
assert struct.unpack(">II", open(sys.argv[1], "rb").read()[16:24]) == (140, 140)
PYTHON

# Fewer images in fewer bytes, but at least one.
run 0 data strokes:classes=10,train=10,test=1,size=64 --preview "$work/all.png"
for bytes in 20000 1; do
  run 0 data strokes:classes=10,train=10,test=1,size=64 --preview "$work/few.png" --preview-bytes $bytes
  python3 - "$work/all.png" "$work/few.png" $bytes <<'PYTHON' || fail "--preview-bytes $bytes has no effect"
import struct, sys
all, few = (open(name, "rb").read() for name in sys.argv[1:3])
assert len(all) > 20000, len(all)
side = struct.unpack(">II", few[16:24])
assert len(few) <= 20000 and (side == (72, 72)) == (sys.argv[3] == "1"), (len(few), side)
PYTHON
done

# Flags that make no sense.
run 2 data strokes --val-fraction 0.1
complains "--val-fraction has no effect with strokes"
run 2 data strokes --image-size 32
complains "--image-size has no effect with strokes"
run 2 data "folder:$good" --image-size 100000
complains "--image-size must be"
run 2 data "folder:$good" --image-size -1
complains "--image-size must be"
run 2 data "folder:$good" --val-fraction 0.1
complains "has a folder val"
run 2 data "folder:$good/train"
complains "has no folder val"
for fraction in 1 -0.1 nan much; do
  run 2 data "folder:$good/train" --val-fraction $fraction
done
run 2 data folder
complains "folder:DIR"
run 2 data "folder:$good" --preview "$work/none.png" --preview-images 0
complains "contact sheet"
run 2 data "folder:$good" --preview "$work/none.png" --preview-bytes 0
complains "--preview-bytes must be at least 1"
[ ! -e "$work/none.png" ] || fail "a sheet that was refused is there"
run 66 data "folder:$work/none"
complains "$work/none: no such folder"
run 66 data "folder:$good/train/bee/notes.txt"
complains "no such folder"
run 73 data "folder:$good" --preview "$work/missing/sheet.png"
complains "$work/missing/sheet.png"

# One folder that is split, and the notes about folders.
checks 0 "folder:$good/train" --val-fraction 0.4 --check
prints "all 7 images read, no problems found"
one=$work/one
make images "$one/train/ant" 2
make images "$one/train/bee" 2
mkdir -p "$one/val/ant"
cp "$one/train/ant/00.png" "$one/val/ant/same.png"
checks 0 "folder:$one" --check
prints "note       classes without test images, 1: bee"
prints "note       test images identical to training images, 1: $one/val/ant/same.png"

# Bad images, each listed on a line of its own.
bad=$work/bad
cp -r "$good" "$bad"
make broken "$bad/train/bee"
checks 0 "folder:$bad"
prints "training   14 images, 4 to 10 per class"
checks 65 "folder:$bad" --check --threads 2
for text in "bomb.png': 65000x65000 pixels" "corrupt.png': " "empty.jpg': an empty file" \
  'line\x0abreak <b>.jpg'"': not a JPEG or PNG image" "text.jpg': not a JPEG or PNG image" "truncated.jpg': " \
  "truncated.png': "; do
  prints "wrong      '$bad/train/bee/$text"
done
[ "$(grep -c '^wrong ' "$work/out")" -eq 7 ] || fail "not seven images are wrong"
complains "7 of the 18 images of 'folder:$bad' cannot be read"
cp "$work/out" "$work/two-threads"
checks 65 "folder:$bad" --check --threads 1
cmp -s "$work/out" "$work/two-threads" || fail "the number of threads changed the list"
run 65 data "folder:$bad" --preview "$work/none.png"
complains "$bad/train/bee/"

# Training on them: by default the first bad one ends it, else they are skipped and counted, up to ten of them.
trains() {
  expected=$1
  shift
  run "$expected" train --quiet --model convnet:8/2,8/2 --image-size 16 --minibatch 8 "$@"
}
trains 0 --data "folder:$good" --out "$work/one-thread" --loader-threads 1 --steps 6
trains 0 --data "folder:$good" --out "$work/three-threads" --loader-threads 3 --steps 6
for folder in one-thread three-threads; do
  cat "$work/$folder"/checkpoints/step-000000006/*.safetensors >"$work/$folder.weights"
done
[ -s "$work/one-thread.weights" ] || fail "no weights"
cmp -s "$work/one-thread.weights" "$work/three-threads.weights" || fail "loader threads changed the weights"
trains 65 --data "folder:$bad" --out "$work/fails" --steps 6
complains "$bad/train/bee/"
cp "$bad/train/bee/text.jpg" "$bad/val/ant"
trains 0 --data "folder:$bad" --out "$work/skips" --on-bad-image skip --steps 6
python3 - "$work/skips/metrics.jsonl" <<'PYTHON' || fail "the metrics do not count the skipped images"
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])]
steps = [record for record in records if record["kind"] == "step"]
evaluations = [record for record in records if record["kind"] == "evaluation"]
assert steps[-1]["skipped_images"] > 0, steps[-1]
assert evaluations[-1]["skipped_images"] == 1 and evaluations[-1]["images"] == 4, evaluations[-1]
PYTHON
for i in 1 2 3 4; do cp "$bad/train/bee/text.jpg" "$bad/train/ant/$i.jpg"; done
trains 65 --data "folder:$bad" --out "$work/many" --on-bad-image skip --steps 50
complains "11 of the 18 training images were found bad, more than the 10 that are skipped"
complains "renorm data folder:$bad --check"

# One class: a note where every prediction is right, and an error where more are needed.
single=$work/single
make images "$single/train/ant" 8
make images "$single/val/ant" 4
note="the data 'folder:$single' has one class only, so every prediction is right"
checks 0 "folder:$single" --check
prints "note       $note"
trains 0 --data "folder:$single" --out "$work/one-class" --steps 1
complains "note: $note"
run 0 eval "$work/one-class"
prints "100.00 %"
complains "note: $note"
trains 2 --data "folder:$single" --out "$work/metric" --objective metric --steps 1
complains "--objective metric needs at least 3 classes, 2 to train on and 1 unseen; folder:$single has 1"

# Folders that make no sense.
cp -r "$good" "$work/empty"
mkdir "$work/empty/train/cow"
run 65 data "folder:$work/empty"
complains "'$work/empty/train/cow': an empty class"
cp -r "$good" "$work/extra"
make images "$work/extra/val/cow" 1
run 65 data "folder:$work/extra"
complains "'$work/extra/val/cow': a class that is not in '$work/extra/train'"
mkdir "$work/nothing"
run 65 data "folder:$work/nothing" --val-fraction 0.5
complains "holds no folders of images"
cp -r "$good" "$work/loop"
ln -s . "$work/loop/train/ant/round"
ln -s ../.. "$work/loop/train/ant/up"
ln -s loop.png "$work/loop/train/ant/loop.png"
checks 0 "folder:$work/loop" --check
prints "all 11 images read, no problems found"
if [ "$(id -u)" -ne 0 ]; then
  cp -r "$good" "$work/closed"
  chmod 0 "$work/closed/train/bee"
  run 66 data "folder:$work/closed"
  complains "'$work/closed/train/bee': Permission denied"
  chmod 700 "$work/closed/train/bee"
fi
odd="$work/new
line <b>"
cp -r "$good" "$odd"
checks 0 "folder:$odd" --check
prints 'new\x0aline <b>'
[ "$(wc -l <"$work/out")" -eq 9 ] || fail "a name broke a line"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
