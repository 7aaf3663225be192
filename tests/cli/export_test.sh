#!/bin/sh
# `renorm export` and `renorm predict` from outside, on a run of 20 small steps.
# usage: export_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"

# predict CODE ARGUMENT...: as run, but predictions before an error stay on standard output.
predict() {
  expected=$1
  shift
  "$renorm" predict "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ "$code" -eq "$expected" ] || fail "renorm predict $*: exit code $code instead of $expected"
}

run 0 train --out "$work/run" --data strokes:classes=10,train=20,test=3,size=12 --model convnet:8/2,16/2 \
  --workers 2 --minibatch 10 --steps 20 --optimizer sgd --lr 0.3 --momentum 0.9 --norm-momentum 0.2 \
  --eval-every 10 --threads 1 --quiet
run 0 train --out "$work/colour" --config "$work/run/config.toml" --norm native --ema-decay 0 --steps 2 --quiet

# Images: colours of no symmetry, a large one, and what is no image.
python3 - "$work" <<'END_OF_PYTHON' || fail "no images"
import struct, sys, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def write(name, width, height, pixel):
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(sys.argv[1] + "/" + name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
                   chunk(b"IEND", b""))

write("one.png", 12, 12, lambda x, y: (255 * (x == y), 20 * x, 10 * y))
write("two.png", 90, 70, lambda x, y: (x, 3 * y % 256, x * y % 256))
END_OF_PYTHON
echo "a text" >"$work/text.jpg"
head -c 100 "$work/one.png" >"$work/cut.png"

# All four files, each checked against the run; standard error stays empty.
for name in plain.pt plain.safetensors; do
  run 0 export "$work/run" --to "$work/$name"
  [ ! -s "$work/err" ] || fail "export: something on standard error"
  for text in "$work/$name" convnet:8/2,16/2 averaged "step 20" "parameters 1,418" "[n, 1, 12, 12]" "read back"; do
    prints "$text"
  done
  run 0 export "$work/run" --to "$work/folded-$name" --fold
  prints folded
  prints "ms per batch of 32"
done
run 0 export "$work/run" --to "$work/raw.pt" --raw --checkpoint step-10
prints "raw, of step 10"
run 0 export "$work/colour" --to "$work/native.pt" --fold
prints "raw, of step 2"

# The same predictions from each of them and from the run.
predict 0 "$work/run" "$work/one.png" "$work/two.png" --json
cp "$work/out" "$work/expected.json"
for name in plain.pt folded-plain.pt plain.safetensors folded-plain.safetensors; do
  predict 0 "$work/$name" "$work/one.png" "$work/two.png" --json --threads 1 --trust-code
  [ ! -s "$work/err" ] || fail "predict: something on standard error"
  python3 - "$work/out" "$work/expected.json" "$work" <<'END_OF_PYTHON' || fail "$name predicts something else"
import json, sys
actual, expected = (json.load(open(name)) for name in sys.argv[1:3])
assert [image["file"] for image in actual["images"]] == [sys.argv[3] + "/one.png", sys.argv[3] + "/two.png"]
assert actual["weights"] == "averaged" and actual["step"] == 20 and actual["model"] == "convnet:8/2,16/2"
for one, other in zip(actual["images"], expected["images"]):
    guesses, wanted = one["predictions"], other["predictions"]
    assert len(guesses) == 5 and [g["index"] for g in guesses] == [g["index"] for g in wanted]
    for guess, want in zip(guesses, wanted):
        assert guess["class"] == want["class"] == "class-%03d" % guess["index"]
        assert abs(guess["probability"] - want["probability"]) < 1e-5
    probabilities = [guess["probability"] for guess in guesses]
    assert probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) < 1
assert actual["images"][0]["predictions"] != actual["images"][1]["predictions"]
END_OF_PYTHON
done
predict 0 "$work/run" --checkpoint step-10 --raw "$work/one.png" --top 100 --json
cp "$work/out" "$work/expected.json"
predict 0 "$work/raw.pt" "$work/one.png" --top 10 --json --trust-code
python3 - "$work/out" "$work/expected.json" <<'END_OF_PYTHON' || fail "raw weights of step 10 predict something else"
import json, sys
actual, expected = (json.load(open(name))["images"][0]["predictions"] for name in sys.argv[1:3])
assert len(actual) == len(expected) == 10
assert abs(sum(guess["probability"] for guess in actual) - 1) < 1e-6
for guess, want in zip(actual, expected):
    assert guess["class"] == want["class"] and abs(guess["probability"] - want["probability"]) < 1e-5
END_OF_PYTHON

# For people: a name, then the classes. More images than are computed at once.
predict 0 "$work/plain.pt" "$work/one.png" --top 2 --trust-code
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "predict --top 2 does not print three lines"
prints "$work/one.png"
grep -qE -e '^ +[0-9]+\.[0-9]{2} %  class-00[0-9]$' "$work/out" || fail "no class with its probability"
many=""
for i in 1 2 3 4 5 6 7 8 9 10; do many="$many $work/one.png $work/two.png $work/one.png $work/two.png"; done
# shellcheck disable=SC2086  # names without blanks
predict 0 "$work/plain.safetensors" $many --top 1
[ "$(wc -l <"$work/out")" -eq 80 ] || fail "not every one of 40 images is predicted"
[ "$(sort -u "$work/out" | wc -l)" -le 4 ] || fail "the same image is predicted differently"

# Bad images among good ones.
predict 65 "$work/plain.pt" "$work/text.jpg" "$work/one.png" "$work/none.png" "$work/cut.png" --top 1 --trust-code
[ "$(wc -l <"$work/out")" -eq 2 ] || fail "the good image is not predicted"
[ "$(wc -l <"$work/err")" -eq 3 ] || fail "not one line for each bad image"
for name in text.jpg none.png cut.png; do complains "$name"; done
predict 65 "$work/plain.pt" "$work/text.jpg" "$work/one.png" --json --trust-code
complains text.jpg
python3 - "$work/out" <<'END_OF_PYTHON' || fail "the JSON lacks the bad image"
import json, sys
images = json.load(open(sys.argv[1]))["images"]
assert "text.jpg" in images[0]["error"] and "predictions" not in images[0]
assert len(images[1]["predictions"]) == 5 and "error" not in images[1]
END_OF_PYTHON
predict 66 "$work/plain.pt" "$work/none.png" "$work/one.png" --trust-code
complains none.png

# A .pt file is a program: without --trust-code it is not even read.
echo "a text" >"$work/text.pt"
for name in plain.pt folded-plain.pt text.pt; do
  run 2 predict "$work/$name" "$work/one.png"
  complains "$work/$name"
  complains "is TorchScript, a program that can read and change your files, and was not run"
  complains --trust-code
  complains ".safetensors"
done
predict 0 "$work/plain.safetensors" "$work/one.png"
run 0 export "$work/run" --to "$work/shared.pt"
prints "renorm predict $work/shared.pt IMAGE... --trust-code"
prints "export to .safetensors"
run 0 export "$work/run" --to "$work/shared.safetensors"
prints "renorm predict $work/shared.safetensors IMAGE..."
grep -q -e program -e --trust-code "$work/out" && fail "a safetensors file is called a program"

# Models that are none.
run 66 predict "$work/none.pt" "$work/one.png"
run 2 predict "$work/text.jpg" "$work/one.png"
complains ".safetensors"
run 65 predict "$work/text.pt" "$work/one.png" --trust-code
complains "$work/text.pt"
cp "$work/text.jpg" "$work/text.safetensors"
run 65 predict "$work/text.safetensors" "$work/one.png"
complains "$work/text.safetensors"
head -c 6000 "$work/plain.pt" >"$work/torn.pt"
export ASAN_OPTIONS=detect_leaks=0  # LibTorch's reader leaks 152 bytes for a damaged file
run 65 predict "$work/torn.pt" "$work/one.png" --trust-code
unset ASAN_OPTIONS
complains TorchScript
head -c 6000 "$work/plain.safetensors" >"$work/torn.safetensors"
run 65 predict "$work/torn.safetensors" "$work/one.png"
cp "$work/run/checkpoints/last/model.safetensors" "$work/weights.safetensors"
run 65 predict "$work/weights.safetensors" "$work/one.png"
complains "model card"
LC_ALL=C sed 's/convnet:8\/2,16\/2/convnet:8\/2,17\/2/' "$work/plain.safetensors" >"$work/other.safetensors"
run 65 predict "$work/other.safetensors" "$work/one.png"
complains "conv2.conv.weight"
# A model of images that are not square, which the same weights allow.
LC_ALL=C sed 's/\(height.": \)12/\110/' "$work/plain.safetensors" >"$work/wide.safetensors"
cmp -s "$work/plain.safetensors" "$work/wide.safetensors" && fail "the card has no height"
predict 0 "$work/wide.safetensors" "$work/one.png" "$work/two.png" --top 1
[ "$(wc -l <"$work/out")" -eq 4 ] || fail "a model of images that are not square does not predict"
mkdir "$work/empty"
run 66 predict "$work/empty" "$work/one.png"
run 66 predict "$work/run" "$work/one.png" --checkpoint step-15
run 2 predict "$work/plain.pt" "$work/one.png" --raw --trust-code
run 2 predict "$work/plain.pt" "$work/one.png" --checkpoint best --trust-code
run 2 predict "$work/plain.pt" --trust-code
complains IMAGE
run 2 predict
run 2 predict "$work/plain.pt" "$work/one.png" --top 0 --trust-code
complains --top
run 2 predict "$work/plain.pt" "$work/one.png" --threads -1 --trust-code
complains --threads

# A refused export changes nothing.
before=$(sha256sum "$work/plain.pt")
run 2 export "$work/run" --to "$work/plain.pt"
complains --force
run 2 export "$work/run" --to "$work/new.onnx"
complains ".safetensors"
complains ".pt"
run 2 export "$work/run"
complains --to
run 2 export --to "$work/new.pt"
complains DIR
run 73 export "$work/run" --to "$work/missing/new.pt"
run 66 export "$work/empty" --to "$work/new.pt"
run 66 export "$work/run" --to "$work/new.pt" --checkpoint step-15
[ "$before" = "$(sha256sum "$work/plain.pt")" ] || fail "a refused export changed the file"
[ -z "$(find "$work" -maxdepth 1 -name 'new*' -o -maxdepth 1 -name '*.tmp.*')" ] || fail "a file was left behind"
run 0 export "$work/run" --to "$work/plain.pt" --fold --force
[ "$before" != "$(sha256sum "$work/plain.pt")" ] || fail "--force did not replace the file"

# Plain PyTorch opens the archive without renorm.
if ! /usr/bin/python3 -c 'import torch' 2>"$work/err"; then
  echo "no PyTorch for /usr/bin/python3: the archives were not opened with it"
else
  run 0 export "$work/run" --to "$work/plain.pt" --force
  predict 0 "$work/run" "$work/one.png" --top 10 --json
  /usr/bin/python3 - "$work" <<'END_OF_PYTHON' || fail "PyTorch computes something else"
import json, sys
import torch
work = sys.argv[1]
files = {"renorm.json": ""}
plain = torch.jit.load(work + "/plain.pt", _extra_files=files)
folded = torch.jit.load(work + "/folded-plain.pt")
card = json.loads(files["renorm.json"])
assert len(card["classes"]) == 10 and card["input"]["channels"] == 1 and card["folded"] is False
names = [name for name, _ in plain.named_parameters()]
assert "conv1.conv.weight" in names and "classifier.bias" in names, names
assert not plain.training and not folded.training
# one.png has the model's size: its pixels, made grey and standardized, are the input.
grey = [[(299 * 255 * (x == y) + 587 * 20 * x + 114 * 10 * y + 500) // 1000 for x in range(12)] for y in range(12)]
image = (torch.tensor(grey).float() / 255 - card["input"]["mean"][0]) / card["input"]["std"][0]
expected = json.load(open(work + "/out"))["images"][0]["predictions"]
with torch.no_grad():
    for model in plain, folded:
        probabilities = model(image.expand(3, 1, 12, 12).contiguous()).softmax(1)
        assert probabilities.shape == (3, 10)
        for guess in expected:
            for row in probabilities:
                assert abs(row[guess["index"]].item() - guess["probability"]) < 1e-5, (guess, row)
END_OF_PYTHON
fi

# Dense layers on composed images, and group normalization: a file predicts what its run predicts.
small="--data strokes:classes=10,train=20,test=3,size=12,decoy=0.5,amplitude=0.2 --steps 20 --threads 1 --quiet"
# shellcheck disable=SC2086  # a list of flags
run 0 train --out "$work/dense" --model mlp:24,16 --norm-bias -1.5 --norm-scale $small
# shellcheck disable=SC2086
run 0 train --out "$work/groups" --model convnet:8/2,flat,16 --norm groupnorm $small
for name in dense groups; do
  run 0 export "$work/$name" --to "$work/$name.safetensors"
  run 0 export "$work/$name" --to "$work/$name.pt"
  predict 0 "$work/$name" "$work/one.png"
  cp "$work/out" "$work/expected"
  predict 0 "$work/$name.safetensors" "$work/one.png"
  cmp -s "$work/out" "$work/expected" || fail "$name.safetensors predicts something else than its run"
  predict 0 "$work/$name.pt" "$work/one.png" --trust-code
done
run 2 export "$work/groups" --to "$work/folded.safetensors" --fold
run 2 eval "$work/groups" --batch-statistics
run 2 train --out "$work/none" --norm-bias -1 --steps 2 --data strokes:classes=10,train=20,test=3 --quiet
run 0 eval "$work/dense" --batch-statistics --sampler labels:5x2

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
