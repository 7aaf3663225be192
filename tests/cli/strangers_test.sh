#!/bin/sh
# Folders and files of strangers: nothing outside of a folder is read, written or shown, and small files take
# little memory.
# usage: strangers_test.sh RENORM
set -u
renorm=$1
. "$(dirname "$0")/lib.sh"
export RENORM_CACHE="$work/cache"
umask 022

secret="attack at dawn"
echo "$secret" >"$work/secret.txt"
secret64=$(base64 <"$work/secret.txt" | head -c 16)

# experiment CODE DIR ARGUMENT...: an experiment of one arm.
experiment() {
  expected=$1
  folder=$2
  shift 2
  run "$expected" reproduce --out "$folder" --data strokes:classes=40,train=6,test=3,size=12 \
    --model convnet:8/2,16/2 --steps 4 --jobs 1 --arms iid-batchnorm "$@"
}

# The same without runs, as somebody would send it.
experiment 0 "$work/made"
mkdir "$work/sent"
cp "$work/made/results.json" "$work/made/data.png" "$work/sent"

# fresh NAME: a copy of what was sent.
fresh() {
  rm -rf "${work:?}/$1"
  cp -r "$work/sent" "$work/$1"
}

# embeds COUNT: the report in $work/x has COUNT contact sheets and not the secret.
embeds() {
  [ "$(grep -c '<img class="sheet"' "$work/x/report.html")" -eq "$1" ] || fail "not $1 contact sheets in the report"
  if grep -qF -e "$secret" -e "$secret64" "$work/x/report.html"; then fail "the report has the secret"; fi
}

fresh x
run 0 report "$work/x"
embeds 1

# A contact sheet that is a link, or no PNG file.
for target in ../secret.txt ../sent/data.png nowhere; do
  fresh x
  ln -sf "$target" "$work/x/data.png"
  run 65 report "$work/x"
  complains "'data.png' is a symbolic link"
  [ ! -e "$work/x/report.html" ] || fail "a report was written in spite of a linked data.png"
done
fresh x
cp "$work/secret.txt" "$work/x/data.png"
run 65 report "$work/x"
complains "x/data.png: not a PNG file"

# A report that is a link is replaced; its target stays. With --out a link is followed.
fresh x
ln -s ../secret.txt "$work/x/report.html"
run 0 report "$work/x"
[ "$(cat "$work/secret.txt")" = "$secret" ] || fail "the report was written through a link"
[ ! -L "$work/x/report.html" ] || fail "the report is still a link"
embeds 1
: >"$work/target.html"
ln -s target.html "$work/link.html"
run 0 report "$work/x" --out "$work/link.html"
[ -s "$work/target.html" ] || fail "--out does not follow a link"

# set_result KEY VALUE: changes results.json of $work/x.
set_result() {
  python3 - "$work/x/results.json" "$1" "$2" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))
if sys.argv[2] == "folder":
    results["arms"][0]["runs"][0]["folder"] = sys.argv[3]
else:
    results[sys.argv[2]] = sys.argv[3]
json.dump(results, open(sys.argv[1], "w"))
END
}

# Data in files of the reader are not shown; built-in data are drawn, without the rest of a large set.
for split in train/a train/b val/a val/b; do
  python3 "$(dirname "$0")/make_images.py" images "$work/photos/$split" 3 || fail "no images"
done
for data in "folder:$work/photos" "folder:../photos" mnist:/ nonsense "strokes:classes=1"; do
  fresh x
  rm "$work/x/data.png"
  set_result data "$data"
  run 0 report "$work/x"
  embeds 0
  if grep -q 'id="why"' "$work/x/report.html"; then fail "images of '$data' in the report"; fi
done
fresh x
rm "$work/x/data.png"
rm -rf "$work/cache"
set_result data strokes:classes=10000,train=400,test=100,size=20
run 0 report "$work/x"
embeds 1
[ ! -e "$work/cache" ] || fail "a report wrote to the cache"
if grep -q 'id="why"' "$work/x/report.html"; then fail "images of decoys of data without them"; fi
set_result data strokes:classes=100,train=100,test=10,size=256,decoy=0.7
run 0 report "$work/x"
[ "$(grep -c 'id="why"' "$work/x/report.html")" -eq 1 ] || fail "no images of decoys"
cp "$work/x/report.html" "$work/first.html"
run 0 report "$work/x"
cmp "$work/first.html" "$work/x/report.html" || fail "another report of the same results"
[ "$(wc -c <"$work/x/report.html")" -lt 2000000 ] || fail "the images of decoys are too large"
[ ! -e "$work/cache" ] || fail "a report wrote to the cache"

# A large contact sheet: a new one shows fewer images, a stored one is left out.
fresh x
rm "$work/x/data.png"
set_result data strokes:classes=10,train=10,test=1,size=256
run 0 report "$work/x"
embeds 1
[ "$(wc -c <"$work/x/report.html")" -lt 2000000 ] || fail "the contact sheet of a report is too large"
fresh x
python3 - "$work/x/data.png" <<'END' || fail "no large image"
import os, struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\0" + os.urandom(1000) for _ in range(1000))
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1000, 1000, 8, 0, 0, 0, 0))
                              + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
run 0 report "$work/x"
embeds 0
complains "note: '$work/x/data.png' has more than 600000 bytes"

# Folders of runs outside, by their name or by a link.
for folder in ../made/runs/iid-batchnorm/seed-1 "$work/made/runs/iid-batchnorm/seed-1"; do
  fresh x
  set_result folder "$folder"
  run 65 report "$work/x"
  complains "must be a path inside the folder of the results"
done
fresh x
ln -s ../made/runs "$work/x/runs"
run 65 report "$work/x"
complains "'runs' is a symbolic link"
cp -r "$work/made/runs" "$work/x/real"
set_result folder real/iid-batchnorm/seed-1
run 0 report "$work/x"

# Links through which an experiment would write, before its first run and after. Its folder may be a link.
ln -s made "$work/linked"
experiment 0 "$work/linked"
run 66 reproduce --out "$work/unstarted" --data "mnist:$work/nothing"
arm=runs/iid-batchnorm
for start in unstarted made; do
  for name in lock data.png data.tmp.log runs $arm $arm/seed-2 $arm/seed-2.log $arm/seed-2/metrics.jsonl \
    $arm/seed-2/training-set.json; do
    rm -rf "$work/x" "$work/outside"
    cp -r "$work/$start" "$work/x"
    mkdir -p "$work/outside" "$(dirname "$work/x/$name")"
    if [ -e "$work/x/$name" ]; then
      mv "$work/x/$name" "$work/outside/target"
    else
      case $name in
        runs | */iid-batchnorm | */seed-2) mkdir "$work/outside/target" ;;
        *) echo "$secret" >"$work/outside/target" ;;
      esac
    fi
    ln -s "$work/outside/target" "$work/x/$name"
    before=$(state "$work/x")$(state "$work/outside")
    experiment 73 "$work/x" --seeds 2
    complains "'$work/x/$name' is a link"
    [ "$before" = "$(state "$work/x")$(state "$work/outside")" ] || fail "$start: written in spite of a linked $name"
  done
done

# The cache: only a folder of the user to which nobody else can write.
spec=strokes:classes=5,train=4,test=2,size=12
rm -rf "$work/cache"
(umask 0 && "$renorm" data $spec) >"$work/out" 2>"$work/err" || fail "no data"
[ "$(stat -c %a "$work/cache")" = 700 ] || fail "the cache can be opened by others"
[ "$(find "$work/cache" -name '*.bin' | wc -l)" -eq 1 ] || fail "nothing is in the cache"
rm "$work/cache"/*.bin
chmod 777 "$work/cache"
run 0 data $spec
[ -z "$(ls "$work/cache")" ] || fail "a cache to which others can write was used"
run 0 doctor
prints "'$work/cache' can be written to by other users"
prints "set RENORM_CACHE"
chmod 700 "$work/cache"
run 0 doctor
prints "$work/cache, writable"

# A few kilobytes that ask for gigabytes.
run 0 export "$work/made/runs/iid-batchnorm/seed-1" --to "$work/small.safetensors"
run 0 data "$spec" --preview "$work/image.png"
# forge SPEC HEIGHT: small.safetensors with another card, as forged.safetensors.
forge() {
  python3 - "$work" "$1" "$2" <<'END'
import json, struct, sys
data = open(sys.argv[1] + "/small.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
card = json.loads(header["__metadata__"]["renorm"])
card["model"] = sys.argv[2]
card["input"]["height"] = card["input"]["width"] = int(sys.argv[3])
header["__metadata__"]["renorm"] = json.dumps(card)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1] + "/forged.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + length:])
END
}
forge convnet:8/2,16/2 65536
run 65 predict "$work/forged.safetensors" "$work/image.png"
complains "input.height"
for model in convnet:8192,8192 convnet:16384/8,5x5:1024 resnet50; do
  forge "$model" 64
  run 65 predict "$work/forged.safetensors" "$work/image.png"
  complains "bytes are too few for the weights of its model"
done
forge convnet:8/2,16/2 12
run 0 predict "$work/forged.safetensors" "$work/image.png"

# Images of 17 kB and 134 million pixels are decoded one after another, not one per thread.
python3 - "$work" <<'END' || fail "no large images"
import struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
side = 11584
image = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
         + chunk(b"IDAT", zlib.compress(bytes((1 + side // 8) * side))) + chunk(b"IEND", b""))
for number in range(3):
    open(f"{sys.argv[1]}/huge{number}.png", "wb").write(image)
END
python3 - "$renorm" predict "$work/small.safetensors" "$work"/huge?.png --threads 3 >"$work/out" 2>"$work/err" <<'END' ||
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
assert megabytes < 1000, f"{megabytes} MB"
END
  fail "three large images take more memory than one"

# A packed file that holds more than its header states.
mkdir "$work/mnist"
python3 - "$work/mnist" <<'END' || fail "no packed files"
import gzip, struct, sys
for split in "train", "t10k":
    with gzip.open(f"{sys.argv[1]}/{split}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 2051, 10, 28, 28))
        for _ in range(64 if split == "train" else 0):
            file.write(bytes(1 << 20))
        if split == "t10k":
            file.write(bytes(10 * 28 * 28))
    with gzip.open(f"{sys.argv[1]}/{split}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 2049, 10) + bytes(range(10)))
END
run 65 data "mnist:$work/mnist"
complains "train-images-idx3-ubyte.gz: holds more than 7856 bytes when unpacked"

[ "$failures" -eq 0 ] || exit 1
echo "strangers: all as they should be"
