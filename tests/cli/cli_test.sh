#!/bin/sh
# The renorm command from outside: its output and exit codes.
# usage: cli_test.sh RENORM VERSION
set -u
renorm=$1
version=$2
. "$(dirname "$0")/lib.sh"

# quietly CODE ARGUMENT...: as run, and success leaves standard error empty.
quietly() {
  run "$@"
  if [ "$1" -eq 0 ]; then
    [ ! -s "$work/err" ] || fail "renorm $*: something on standard error"
  fi
}

# flags FLAG...: the latest help text lists each of them and no other.
flags() {
  for flag in "$@" --help; do
    grep -qE -e "^  (-[a-z], )?$flag( |$)" "$work/out" || fail "the help text lacks $flag"
  done
  listed=$(grep -cE -e '^  (-[a-z], )?--' "$work/out")
  [ "$listed" -eq $(($# + 1)) ] || fail "the help text has $listed flags instead of $(($# + 1))"
}

# The time, which is mostly that of loading LibTorch, is printed and not checked.
start=$(date +%s%N)
quietly 0 --help
printf 'renorm --help took %d ms\n' $((($(date +%s%N) - start) / 1000000))
for command in reproduce report train eval export predict data models "bench layer" "bench step" "bench workers" doctor; do prints "$command"; done
flags --version
quietly 0 --version
prints "renorm $version"
prints LibTorch
prints SIMD

quietly 0 train --help
flags --out --resume --config --force-bf16 --quiet \
  --data --sampler --split-pairs --deal --val-fraction --image-size --crop-area --flip --jitter --on-bad-image \
  --loader-threads --init --dtype --memory-format --workers --minibatch --microbatch --sync-norm --chunk \
  --rendezvous --dist-timeout \
  --model --norm --norm-scale --norm-eps --norm-momentum --norm-bias --objective --embedding --unseen --clip --steps --epochs \
  --optimizer --lr --lr-schedule --lr-final --warmup --momentum --alpha --beta1 --beta2 --optimizer-eps \
  --weight-decay --label-smoothing --clip-gradient --ema-decay \
  --seed --threads --log-every --eval-every --checkpoint-every --keep
for code in 2 65 66 70 73 74 75 76; do prints " $code "; done
prints "Examples:"
quietly 0 eval --help
flags --checkpoint --split --data --val-fraction --per-class --probe-decoys --extra-rows --threads --json --force --batch-statistics --sampler \
  --seed
prints "Usage: renorm eval DIR"
quietly 0 export --help
flags --to --fold --checkpoint --raw --force
prints "Usage: renorm export DIR"
quietly 0 predict --help
flags --top --json --threads --checkpoint --raw --trust-code
prints "Usage: renorm predict FILE IMAGE..."
quietly 0 data --help
flags --check --preview --force --preview-classes --preview-images --preview-bytes --val-fraction --image-size --threads
prints "Usage: renorm data SPEC"
quietly 0 models --help
flags --layers --size --channels --classes
prints "Usage: renorm models [MODEL]"
quietly 0 bench --help
prints layer
prints step
prints workers
flags
quietly 0 bench layer --help
flags --quick --fresh-memory --threads --shapes --simd --json --force
quietly 0 bench step --help
flags --model --data --memory-format --norms --minibatch --workers --threads --steps --json --force
quietly 0 bench workers --help
flags --model --data --minibatch --workers --processes --rounds --steps --gbit --latency-us --json --force
quietly 2 bench workers --rounds 0
complains "--rounds must be a whole number from 1 to 1000000, got 0"
quietly 2 bench workers --workers 3
complains "--workers must be a multiple of --processes 2, got 3"
RANK=0 WORLD_SIZE=2 quietly 2 reproduce
complains "run it once, without mpirun"
quietly 0 reproduce --help
flags --quick --full --seeds --steps --arms --jobs --out --data --model --json
quietly 0 report --help
flags --out --force
quietly 0 doctor --help
flags --json

quietly 2
complains "needs a command: reproduce, report, train, eval, export, predict, data, models, bench, doctor"
quietly 2 bench
complains "needs a command: layer, step"
quietly 2 bnch
complains "unknown command 'bnch' for 'renorm'; did you mean 'bench'?"
quietly 2 bench lair
complains "did you mean 'layer'?"
quietly 2 bench layer --thread 2
complains "unknown flag '--thread' for 'renorm bench layer'; did you mean '--threads'?"
quietly 2 bench step --step=3
complains "did you mean '--steps'?"
quietly 2 doctor now
complains "unexpected argument 'now' for 'renorm doctor', which takes flags only"
quietly 2 eval one two
complains "unexpected argument 'two'"
quietly 2 models resnet-small 3
complains "unexpected argument '3'"
quietly 2 train --out "$work/run" 100
complains "unexpected argument '100'"
quietly 2 train --out "$work/run" --epoch 3
complains "did you mean '--epochs'?"
quietly 2 train --out "$work/run" --batch-size 32
complains "unknown flag '--batch-size' for 'renorm train'; use '--minibatch'"
quietly 2 bench step --steps -1
complains "--steps must be"
quietly 2 bench step --memory-format nhwc
complains "unknown memory format 'nhwc'"
quietly 2 bench step --norms renorm,natve
complains "did you mean 'native'?"
quietly 2 bench step --threads 0
complains "--threads must be"
quietly 2 bench step --steps three
complains "invalid value 'three' for --steps"
quietly 2 eval "$work/run" --seed -1
complains "--seed"
quietly 2 bench step --steps
complains "--steps needs a value"
quietly 2 bench layer --threads 0
complains "--threads must be"
quietly 2 bench layer --simd MMX
complains "--simd must be one of"
quietly 2 bench layer --shapes 32xmany
complains "32xmany"
quietly 2 bench layer --shapes 32x8x8
complains "32x8x8"

quietly 2 train
complains "needs --out"
quietly 2 train --out ""
complains "needs --out"
quietly 2 train --out --resume
complains "--out needs a value"
quietly 2 train --out "$work/run" --lr
complains "--lr needs a value"
quietly 2 train --out "$work/run" --lr 0.1 --lr 0.2
complains "--lr is given more than once"
quietly 2 train --out "$work/run" --lr fast
complains "--lr must be a number"
quietly 2 train --out "$work/run" --lr -1
complains "--lr must be a number"
quietly 2 train --out "$work/run" --lr "$(printf '\033[31m')"
complains '\x1b[31m'
quietly 2 train --out "$work/run" --norm renrm
complains "did you mean 'renorm'?"
quietly 2 train --out "$work/run" --norm-scale=perhaps
complains "--norm-scale must be true or false"
quietly 2 train --out "$work/run" --sampler labels:16
complains "--sampler"
quietly 2 train --out "$work/run" --clip 3
complains "--clip"
quietly 2 train --out "$work/run" --steps 10 --epochs 1
complains "--epochs"
quietly 2 train --out "$work/run" --model inception-smal
complains "did you mean 'inception-small'?"
quietly 2 train --out "$work/run" --data stroks
complains "did you mean 'strokes'?"
quietly 2 train --out "$work/run" --model convnet:8/2,many
complains "many"
quietly 2 train --out "$work/run" --data strokes:clases=3
complains "did you mean 'classes'?"
quietly 66 train --out "$work/run" --config "$work/none.toml"
complains "$work/none.toml"
printf 'seed = 3\nlr = 0.1\nstps = 100\n' >"$work/typo.toml"
quietly 2 train --out "$work/run" --config "$work/typo.toml"
complains "$work/typo.toml:3:1"
complains "did you mean 'steps'?"
printf 'seed = 3\nlr = -0.1\n' >"$work/range.toml"
quietly 2 train --out "$work/run" --config "$work/range.toml"
complains "$work/range.toml:2:"
[ ! -e "$work/run" ] || fail "a command that was refused made a folder"

quietly 2 eval
complains "needs DIR"
quietly 2 eval "$work" --split validation
complains "--split must be test or train"
quietly 2 eval "$work" --sampler iid
complains "--sampler has no effect without --batch-statistics"
quietly 66 eval "$work/none"
complains "$work/none"
quietly 2 data
complains "needs a SPEC"
quietly 2 data stroks
complains "did you mean 'strokes'?"
quietly 66 data "mnist:$work/none"
complains "$work/none"
quietly 2 models convnt:8
complains "did you mean 'convnet'?"

quietly 0 models
for model in inception-v3 resnet18 resnet50; do prints "$model"; done
for model in inception-small resnet-small convnet; do prints "$model"; done
# Products of an LSTM count once per layer, their multiply-adds once per row; the first row has no state before it.
quietly 0 models lstm:8 --layers
prints "layers         3, 2 of them normalized"
prints "multiply-adds  19,264 for one image forward"  # 20 x 20 x 32 + 19 x 8 x 32 + 8 x 200
quietly 0 doctor
for name in renorm libtorch simd threads blas onednn processes cache; do
  prints " $name "
done
# oneDNN below the CPU: bfloat16 may be refused by LibTorch, which is a finding.
DNNL_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 "$renorm" doctor >"$work/out" 2>"$work/err" || fail "doctor fails where bfloat16 is refused"
prints " bf16 "
quietly 0 doctor --json
python3 - "$work/out" <<'EOF' || fail "the JSON of doctor lacks something"
import json, sys
report = json.load(open(sys.argv[1]))
findings = {finding["name"]: finding for finding in report["findings"]}
for name in ["renorm", "libtorch", "simd", "threads", "blas", "cache"]:
    assert findings[name]["value"], name
for finding in report["findings"]:
    assert finding["ok"] == (finding["remedy"] is None), finding
assert report["ok"] == all(finding["ok"] for finding in report["findings"])
EOF
OMP_NUM_THREADS=1 "$renorm" doctor --json >"$work/out" 2>"$work/err"
grep -q '"value": "1 of [0-9]* CPUs, OMP_NUM_THREADS = 1"' "$work/out" || fail "doctor does not see OMP_NUM_THREADS"

# Detected before measuring: a measurement of these shapes would take minutes.
quietly 73 bench layer --json "$work/missing/figures.json"
complains "$work/missing/figures.json"
quietly 73 bench layer --json "$work"
complains "not a regular file"

# Standard output that cannot be written is an error too.
"$renorm" --version >/dev/full 2>"$work/err"
[ $? -eq 74 ] || fail "renorm --version >/dev/full: not exit code 74"

quietly 0 bench step --model convnet:8/2 --data strokes:classes=10,train=8,test=2,size=12 --minibatch 8 --steps 3 \
  --norms renorm --json "$work/step.json"
prints "x native"
prints "folded"
python3 - "$work/step.json" <<'EOF' || fail "the JSON of bench step lacks something"
import json, math, sys
for layout in json.load(open(sys.argv[1]))["layouts"].values():
    assert set(layout["norms"]) == {"renorm", "native"}, layout["norms"].keys()
    assert set(layout["inference"]) == {"renorm", "native", "folded"}, layout["inference"].keys()
    for norm in layout["norms"].values():
        assert len(norm["step_ms_each"]) == len(norm["cpu_ms_each"]) == 3
        for figure in ["step_ms", "cpu_ms", "over_native", "over_native_cpu", "peak_tensors_mb", "peak_memory_mb"]:
            assert math.isfinite(norm[figure]) and norm[figure] > 0, (figure, norm[figure])
    assert layout["norms"]["native"]["over_native"] == 1.0
EOF
quietly 0 bench workers --model convnet:8/2 --data strokes:classes=10,train=8,test=2,size=12 --minibatch 8 --steps 3 \
  --rounds 2 --json "$work/workers.json"
prints "Projection, not measured"
python3 - "$work/workers.json" <<'EOF' || fail "the JSON of bench workers lacks something"
import json, sys
figures = json.load(open(sys.argv[1]))
assert figures["one"]["processes"] == 1 and figures["shared"]["processes"] == 2, figures
assert len(figures["speed_over_one_each"]) == 2 and figures["shared"]["step_ms"] > 0, figures
assert [one["processes"] for one in figures["projection"]["sizes"]][-1] == 1024, figures["projection"]
EOF
oldest=$("$renorm" doctor | sed -n 's/.*compiled for this CPU: //p' | awk '{ print $NF }')
quietly 0 bench layer --quick --simd "$oldest" --shapes 32x64,8x16x6x6 --json "$work/figures.json"
prints "SIMD target $oldest"
prints "malloc: freed memory is kept"
prints "dense forward"
prints "nhwc backward"
python3 - "$work/figures.json" <<'EOF' || fail "the JSON of bench layer lacks something"
import json, math, sys
figures = json.load(open(sys.argv[1]))
with_onednn = bool(figures["machine"]["onednn"])
assert figures["malloc"].startswith("freed memory is kept") and figures["geomean_of_medians"]["nchw"]["forward"]["native"] > 0
ratios = ["native", "native_relu", "native_add_relu", "add_relu_separately", "tensor_ops", "copy_multiple", "copy_multiple_shipped"]
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
"$(dirname "$0")/../../tools/bench-aims" "$work/figures.json" >"$work/out" 2>"$work/err"
[ $? -le 1 ] && [ ! -s "$work/err" ] || fail "bench-aims cannot read the JSON of bench layer"
prints "native batchnorm / ours"
prints "aims met"
[ "$(find "$work" -name '*.tmp.*' | wc -l)" -eq 0 ] || fail "a temporary file was left behind"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
