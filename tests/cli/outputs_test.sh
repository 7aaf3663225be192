#!/bin/sh
# Files that commands write where the user says: what is replaced and what is not. And runs with a damaged checkpoint.
# usage: outputs_test.sh RENORM
set -u
renorm=$1
here=$(dirname "$0")
. "$here/lib.sh"
RENORM_CACHE=$work/cache
export RENORM_CACHE
data=strokes:classes=4,train=8,test=3,size=12

run 0 train --out "$work/run" --data $data --model convnet:8/2 --minibatch 8 --steps 6 --eval-every 2 --log-every 1 \
  --threads 1 --quiet
run 0 train --out "$work/run2" --config "$work/run/config.toml" --quiet

small="--model convnet:8/2 --data $data --minibatch 8 --steps 1"
# to CODE FILE [--force]: $command writes FILE and ends with CODE.
to() {
  wanted=$1
  target=$2
  shift 2
  case $command in
    eval) run "$wanted" eval "$work/run" --json "$target" "$@" ;;
    report) run "$wanted" report "$work/run" --out "$target" "$@" ;;
    data) run "$wanted" data $data --preview "$target" "$@" ;;
    layer) run "$wanted" bench layer --quick --shapes 4x8 --json "$target" "$@" ;;
    step) run "$wanted" bench step $small --json "$target" "$@" ;;
    workers) run "$wanted" bench workers $small --rounds 1 --json "$target" "$@" ;;
  esac
}

for command in eval report data; do
  out=$work/$command.out
  to 0 "$out"
  [ -s "$out" ] || fail "$command wrote nothing"
  to 0 "$out"  # an earlier output
  : >"$work/empty"
  to 0 "$work/empty"
  [ -s "$work/empty" ] || fail "$command did not replace an empty file"
  echo precious >"$work/own"
  to 2 "$work/own"
  complains "'$work/own' exists and is not an earlier output of this command"
  complains "--force"
  [ "$(cat "$work/own")" = precious ] || fail "$command replaced a file that it did not write"
  ln -sf own "$work/link"
  to 2 "$work/link"
  [ "$(cat "$work/own")" = precious ] || fail "$command replaced a file through a link"
  to 0 "$work/own" --force
  cmp -s "$work/own" "$out" || fail "--force did not replace the file"

  # Files of a run are never replaced, also those that are missing.
  before=$(state "$work/run")$(state "$work/run2")
  for file in run/metrics.jsonl run2/metrics.jsonl run/config.toml run/summary.csv run/lock \
    run/checkpoints/last/model.safetensors run/checkpoints/step-000000006/new run/checkpoints/new; do
    to 2 "$work/$file" --force
    complains "belongs to the run in"
  done
  to 2 "$work/run/metrics.jsonl"
  complains "belongs to the run in"
  ln -sf run/metrics.jsonl "$work/link"
  to 2 "$work/link" --force
  # Those that are missing have no other name either.
  rm -rf "$work/partial"
  cp -r "$work/run2" "$work/partial"
  rm "$work/partial/summary.csv"
  ln -sf partial/summary.csv "$work/dangling"
  to 2 "$work/dangling" --force
  complains "belongs to the run in"
  (cd "$work/partial" && to 2 summary.csv --force && exit "$failures") || fail "$command: a relative path"
  complains "belongs to the run in"
  [ ! -e "$work/partial/summary.csv" ] || fail "$command made a file of a run"
  [ "$before" = "$(state "$work/run")$(state "$work/run2")" ] || fail "$command changed a run"
  to 0 "$work/run/mine.$command"
  to 0 "$work/run/mine.$command"
  rm "$work/run/mine.$command"
done
# One command's output is not another's.
command=eval
to 2 "$work/report.out"
command=data
to 2 "$work/eval.out"
run 2 export "$work/run" --to "$work/run/checkpoints/last/model.safetensors" --force
complains "belongs to the run in"

# Nor are those behind links, and those of a run without its settings.
mkdir "$work/elsewhere"
cp -r "$work/run2" "$work/linked"
mv "$work/linked/metrics.jsonl" "$work/linked/m2"
mv "$work/linked/summary.csv" "$work/elsewhere/s2"
mv "$work/linked/checkpoints" "$work/linked/kept"
ln -s m2 "$work/linked/metrics.jsonl"
ln -s "$work/elsewhere/s2" "$work/linked/summary.csv"
ln -s kept "$work/linked/checkpoints"
cp -r "$work/run2" "$work/bare"
rm "$work/bare/config.toml"
before=$(state "$work/linked")$(state "$work/elsewhere")$(state "$work/bare")
for file in linked/metrics.jsonl linked/m2 linked/summary.csv linked/checkpoints/last/state.json linked/kept/new \
  bare/metrics.jsonl bare/config.toml bare/checkpoints/last/state.json; do
  to 2 "$work/$file" --force
  complains "belongs to the run in"
done
[ "$before" = "$(state "$work/linked")$(state "$work/elsewhere")$(state "$work/bare")" ] || fail "a run was changed"
rm "$work/elsewhere/s2"
to 2 "$work/linked/summary.csv" --force
complains "belongs to the run in"
[ ! -e "$work/elsewhere/s2" ] || fail "a file behind a link of a run was made"
to 0 "$work/linked/mine"

# The figures of `bench`. Refused before anything is measured.
cp "$work/eval.out" "$work/other"
for command in layer step workers; do
  echo precious >"$work/own"
  to 2 "$work/own"
  complains "'$work/own' exists and is not an earlier output of this command"
  [ "$(cat "$work/own")" = precious ] || fail "bench $command replaced a file that it did not write"
  to 2 "$work/other"  # of another command
  to 2 "$work/run/metrics.jsonl" --force
  complains "belongs to the run in"
  to 0 "$work/own" --force
  to 0 "$work/own"  # an earlier output
  mv "$work/own" "$work/other"
done

# The results of an experiment.
experiment="reproduce --out $work/a --data $data --model convnet:8/2 --steps 2 --arms iid-batchnorm"
# shellcheck disable=SC2086  # several words
run 0 $experiment
for command in eval report data; do
  cp "$work/a/results.json" "$work/results.before"
  to 2 "$work/a/results.json" --force
  complains "has the results of an experiment"
  cmp -s "$work/a/results.json" "$work/results.before" || fail "$command replaced the results of an experiment"
done

# It replaces its own files only.
echo precious >"$work/a/data.log"
for file in data.png report.html; do
  cp "$work/a/$file" "$work/earlier"
  echo precious >"$work/a/$file"
  before=$(state "$work/a")
  # shellcheck disable=SC2086
  run 2 $experiment
  complains "'$work/a/$file' exists and is not an earlier output of this command"
  [ "$before" = "$(state "$work/a")" ] || fail "reproduce changed a folder with another $file"
  : >"$work/a/$file"
  # shellcheck disable=SC2086
  run 0 $experiment
  cmp -s "$work/a/$file" "$work/earlier" || fail "reproduce did not replace an empty $file"
done
[ "$(cat "$work/a/data.log")" = precious ] || fail "reproduce changed a file that it did not write"

# A damaged newest checkpoint is named, and so is the step that is used.
: >"$work/run/checkpoints/step-000000006/model.safetensors"
python3 "$here/make_images.py" images "$work/photos" 1 || fail "make_images.py"
photo=$(find "$work/photos" -type f | head -n 1)
note="step-000000006/model.safetensors: does not match its checksum in SHA256SUMS: altered or truncated; using step 4"
for arguments in "eval $work/run" "export $work/run --to $work/new.pt" "predict $work/run $photo"; do
  # shellcheck disable=SC2086
  run 0 $arguments
  complains "note: "
  complains "$note"
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$arguments: not one note"
done
run 65 eval "$work/run" --checkpoint step-6
run 0 eval "$work/run" --checkpoint step-2
[ ! -s "$work/err" ] || fail "a note on a checkpoint that was not asked for"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
