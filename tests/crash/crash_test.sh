#!/usr/bin/env bash
# A small `renorm train` is disturbed and resumed; it must end with the bytes of a run that was left alone.
# usage: crash_test.sh RENORM FAULT_LIBRARY TEST
#   kill [N|all]    kill -9 at N points (10), two fifths inside a checkpoint, or at each change to a file
#   full [N|all]    the disk runs full at N of its changes to files (12), or at each
#   io [N|all]      the same with one change that fails as by a broken device
#   signal          SIGTERM and SIGINT, once and twice, also before the first step
#   torn            each file of the last checkpoint cut, altered or deleted
#   taken           its folder or its lock deleted while it trains
set -u
renorm=$1
library=$(realpath "$2")
what=$3
count=${4:-}
work=$(realpath "$(mktemp -d)")
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export RENORM_CACHE=$work/cache
export NO_COLOR=1
unset RENORM_FAULT RENORM_FAULT_AT RENORM_FAULT_DIR RENORM_FAULT_LOG
RANDOM=20170220
failures=0

# Signals and kills between steps have to arrive before the run is over; elsewhere the shortest run will do.
case $what:$count in
  signal:* | taken:*) steps=400 ;;
  kill:all) steps=20 ;;
  kill:*) steps=100 ;;
  *) steps=20 ;;
esac
settings=(--data strokes:classes=10,train=20,test=5,size=12 --model convnet:8/2,16/2 --sampler labels:5x2
  --workers 2 --minibatch 10 --threads 1 --steps $steps --log-every 1 --eval-every $((steps / 2))
  --checkpoint-every $((steps / 4)) --keep 2)

fail() {
  echo "FAILED: $*"
  sed 's/^/  stderr: /' "$work/err" 2>/dev/null
  failures=$((failures + 1))
}

# begin DIR ARGUMENT...: starts training in the background, sets `pid`. SIGINT has its default
# action, although the shell disables it for background jobs.
begin() {
  local folder=$1
  shift
  env --default-signal=INT "$renorm" train --out "$folder" --quiet "${settings[@]}" "$@" \
    >"$work/out" 2>"$work/err" &
  pid=$!
}

# finish: waits for the process of `begin`, sets `code`.
finish() {
  code=0
  wait "$pid" 2>/dev/null || code=$?
  pid=
}

# train DIR ARGUMENT...: trains to the end, sets `code`.
train() {
  begin "$@"
  finish
}

# disturbed KIND NUMBER DIR ARGUMENT...: trains while change NUMBER below DIR goes wrong, sets `code`.
disturbed() {
  local kind=$1 number=$2
  shift 2
  RENORM_FAULT=$kind RENORM_FAULT_AT=$number RENORM_FAULT_DIR=$1 LD_PRELOAD=$library begin "$@"
  finish
}

one_sentence() {
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$1: standard error is not one line"
}

lines_of() { wc -l 2>/dev/null <"$1" || echo 0; }

# The records without the fields that measure time and without the id of the run, which the first line has.
stable_records() { sed -E 's/"(images_per_second|seconds)":[^,}]*//g; 1s/"run":"[0-9a-f]{16}",//' "$1"; }

# finished DIR CASE: the run in DIR ended as the undisturbed one did.
finished() {
  local folder=$1 title=$2 file
  if [ "$code" -ne 0 ]; then
    fail "$title: the resumed run ended with exit code $code"
    rm -rf "$folder"
    return
  fi
  for file in model average optimizer; do
    cmp -s "$work/whole/checkpoints/last/$file.safetensors" "$folder/checkpoints/last/$file.safetensors" ||
      fail "$title: $file.safetensors differs from the undisturbed run's"
  done
  diff <(stable_records "$work/whole/metrics.jsonl") \
    <(stable_records "$folder/metrics.jsonl") >"$work/diff" ||
    fail "$title: metrics.jsonl differs: $(head -c 300 "$work/diff")"
  diff <(cut -d, -f1 "$work/whole/summary.csv") <(cut -d, -f1 "$folder/summary.csv") >"$work/diff" ||
    fail "$title: summary.csv differs: $(head -c 300 "$work/diff")"
  diff <(cd "$work/whole" && find . | sort) <(cd "$folder" && find . | sort) >"$work/diff" ||
    fail "$title: other files than in the undisturbed run: $(head -c 300 "$work/diff")"
  rm -rf "$folder"
}

# The undisturbed run, with every change that it makes to files in $work/log.
whole_run() {
  RENORM_FAULT_LOG=$work/log RENORM_FAULT_DIR=$work/whole LD_PRELOAD=$library begin "$work/whole"
  finish
  if [ "$code" -ne 0 ]; then
    fail "the undisturbed run ended with exit code $code"
    exit 1
  fi
  local records=$work/whole/metrics.jsonl
  [ "$(grep -c '"kind":"step"' "$records")" -eq $steps ] || fail "not $steps records of steps"
  [ "$(grep -c '"kind":"evaluation"' "$records")" -eq 2 ] || fail "not 2 evaluations"
  calls=$(lines_of "$work/log")
}

# spread N TOTAL: N numbers from 1 to TOTAL, evenly spread, each a little shifted at random.
spread() {
  local i
  for ((i = 0; i < $1; i++)); do
    echo $((1 + (i * $2 + RANDOM % $2) / $1))
  done
}

# kill_at_record NUMBER DIR ARGUMENT...: kill -9 as soon as metrics.jsonl has that many lines.
kill_at_record() {
  local number=$1
  shift
  begin "$@"
  while [ "$(lines_of "$1/metrics.jsonl")" -lt "$number" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
  kill -KILL "$pid" 2>/dev/null
  finish
}

# After the first kill up to two more, then to the end. Once the run has stored its settings, they are not given.
resume_with_kills() {
  local folder=$1 kills=$((RANDOM % 3))
  [ ! -e "$folder/config.toml" ] || local -a settings=()
  while [ "$code" -ne 0 ] && [ $kills -gt 0 ]; do
    disturbed kill $((1 + RANDOM % calls)) "$folder" --resume
    [ "$code" -eq 0 ] || [ "$code" -eq 137 ] || fail "killed again: exit code $code"
    kills=$((kills - 1))
  done
  train "$folder" --resume
}

# The change that writes the first record. A failure at an earlier change is one before the first step.
first_record() { awk '$2 == "write" && $3 ~ /\/metrics.jsonl$/ { print $1; exit }' "$work/log"; }

title_of() { echo "$1 at change $2 ($(sed -n "${2}s/[^ ]* //p" "$work/log" | sed "s|$work/||"))"; }

kill_at_change() {
  local title
  title=$(title_of killed "$1")
  disturbed kill "$1" "$work/run"
  [ "$code" -eq 137 ] || fail "$title: exit code $code instead of 137"
  resume_with_kills "$work/run"
  finished "$work/run" "$title"
}

# A fifth of the points while the run begins, two fifths inside a checkpoint, the rest between steps.
test_kill() {
  local points=${count:-10} number killed=0
  if [ "$points" = all ]; then
    for number in $(seq "$calls"); do kill_at_change "$number"; done
    echo "killed at each of $calls changes to files"
    return
  fi
  local begins=$((points / 5)) saves=$((points * 2 / 5))
  local between=$((points - begins - saves))
  local -a inside
  mapfile -t inside < <(awk '$3 ~ /\/checkpoints\/./ { print $1 }' "$work/log")
  for number in $(spread $begins $(($(first_record) - 1))); do kill_at_change "$number"; done
  for number in $(spread $saves ${#inside[@]}); do kill_at_change "${inside[number - 1]}"; done
  for number in $(spread $between $((steps + 2))); do
    kill_at_record "$number" "$work/run"
    [ "$code" -ne 137 ] || killed=$((killed + 1))
    resume_with_kills "$work/run"
    finished "$work/run" "killed at record $number"
  done
  echo "killed at $((begins + saves)) changes to files, $killed of $between times between steps"
}

# The exit code of a run whose change NUMBER fails.
expected_code() {
  local last_space
  last_space=$(awk '$2 !~ /^(unlink|unlinkat|rmdir|remove|f?truncate(64)?)$/ { n = $1 }
    END { print n }' "$work/log")
  if [ "$1" -gt "$last_space" ]; then echo 0
  elif [ "$1" -lt "$(first_record)" ]; then echo 73
  else echo 74; fi
}

test_disk() {
  local kind=$1 number expected title checkpoints
  local -a numbers
  if [ "$count" = all ]; then mapfile -t numbers < <(seq "$calls"); else
    mapfile -t numbers < <(spread "${count:-12}" "$calls"); fi
  for number in "${numbers[@]}"; do
    title=$(title_of "$kind" "$number")
    expected=$(expected_code "$number")
    disturbed "$kind" "$number" "$work/run"
    # A failed deletion may be ignored: the file left behind does no harm.
    if [ "$code" -ne "$expected" ] && ! { [ "$kind" = io ] && [ "$code" -eq 0 ]; }; then
      fail "$title: exit code $code instead of $expected"
    fi
    [ "$code" -eq 0 ] || one_sentence "$title"
    checkpoints=$(find "$work/run/checkpoints" -maxdepth 1 -type d -name 'step-*' 2>/dev/null | wc -l)
    if [ "$checkpoints" -gt 0 ]; then
      "$renorm" eval "$work/run" --threads 1 >"$work/out" 2>"$work/err" ||
        fail "$title: renorm eval ended with exit code $?"
    fi
    train "$work/run" --resume
    finished "$work/run" "$title"
  done
  echo "$kind: ${#numbers[@]} of $calls changes"
}

# wait_for COUNT FILE: until the file has so many lines, at most a minute.
wait_for() {
  local i
  for ((i = 0; i < 3000; i++)); do
    [ "$(lines_of "$2")" -lt "$1" ] || return 0
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.02
  done
  return 1
}

test_signal() {
  local signal
  for signal in TERM INT; do
    begin "$work/run"
    wait_for 3 "$work/run/metrics.jsonl" || fail "no third record"
    kill -$signal "$pid"
    finish
    [ "$code" -eq 75 ] || fail "SIG$signal: exit code $code instead of 75"
    grep -q -e --resume "$work/err" || fail "SIG$signal: standard error does not say how to go on"
    train "$work/run" --resume
    finished "$work/run" "SIG$signal"
  done
  test_early_signal
  test_second_signal
}

# While libraries are initialized, and at some changes to files before the first step.
test_early_signal() {
  local -a all_settings=("${settings[@]}")
  local number title
  for number in 0 $(spread 5 $(($(first_record) - 1))); do
    local -a settings=("${all_settings[@]}")
    title="SIGTERM at change $number"
    disturbed term "$number" "$work/run"
    [ "$code" -eq 75 ] || fail "$title: exit code $code instead of 75"
    one_sentence "$title"
    [ ! -s "$work/run/metrics.jsonl" ] || fail "$title: a step was trained"
    [ -s "$work/run/config.toml" ] || fail "$title: no settings to resume"
    settings=()
    train "$work/run" --resume
    finished "$work/run" "$title"
  done
  RENORM_FAULT=term RENORM_FAULT_AT=0 RENORM_FAULT_DIR=$work/experiment LD_PRELOAD=$library "$renorm" reproduce \
    --out "$work/experiment" --steps 10 >/dev/null 2>"$work/err"
  code=$?
  [ "$code" -eq 75 ] || fail "SIGTERM while reproduce starts: exit code $code instead of 75"
  grep -q "renorm: stopped; the same command continues" "$work/err" || fail "SIGTERM while reproduce starts: no sentence"
}

# Steps that take many seconds: the first signal has to wait for one, the second has not.
test_second_signal() {
  local -a settings=(--data strokes:classes=10,train=20,test=1,size=64 --model convnet:64/1,64/1,64/1
    --workers 100 --minibatch 10 --steps 3 --threads 1)
  begin "$work/slow"
  wait_for 1 "$work/slow/summary.csv" || fail "the slow run did not start"
  sleep 0.5
  kill -TERM "$pid"
  sleep 0.5
  kill -0 "$pid" 2>/dev/null || fail "one signal ended the run in the middle of a step"
  kill -TERM "$pid" 2>/dev/null
  local i
  for ((i = 0; i < 100; i++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.02
  done
  if kill -0 "$pid" 2>/dev/null; then
    fail "two signals did not end the run within two seconds"
    kill -KILL "$pid"
  fi
  finish
  [ "$code" -ne 0 ] || fail "two signals: exit code 0"
}

# damage HOW FILE
damage() {
  local size
  size=$(stat -c %s "$2")
  case $1 in
    cut) truncate -s $((size / 2)) "$2" ;;
    altered)
      local at=$((size * 2 / 3)) byte
      byte=$(od -An -tu1 -j "$at" -N 1 "$2")
      printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$2" bs=1 seek="$at" conv=notrunc status=none ;;
    deleted) rm "$2" ;;
  esac
}

test_torn() {
  local file how n=0
  local -a kinds=(cut altered deleted)
  for file in "$work"/whole/checkpoints/last/*; do
    file=$(basename "$file")
    # Every file is damaged in one way, every way is used; the library tests try them all.
    how=${kinds[n % 3]}
    n=$((n + 1))
    cp -a "$work/whole" "$work/run"
    damage "$how" "$work/run/checkpoints/last/$file"
    train "$work/run" --resume
    grep -qF "$file" "$work/err" || fail "$file $how: standard error does not name it"
    finished "$work/run" "$file $how"
  done
  [ $n -ge 5 ] || fail "only $n files in a checkpoint"
  cp -a "$work/whole" "$work/run"
  for file in "$work"/run/checkpoints/step-*/model.safetensors; do damage altered "$file"; done
  train "$work/run" --resume
  [ "$code" -eq 65 ] || fail "no good checkpoint: exit code $code instead of 65"
  one_sentence "no good checkpoint"
}

test_taken() {
  begin "$work/run"
  wait_for 3 "$work/run/metrics.jsonl" || fail "no third record"
  mv "$work/run" "$work/moved"
  finish
  [ "$code" -eq 74 ] || fail "folder moved: exit code $code instead of 74"
  one_sentence "folder moved"
  [ ! -e "$work/run" ] || fail "folder moved: it was made again"
  [ ! -s "$work/out" ] || fail "folder moved: a result was printed"
  train "$work/moved" --resume
  finished "$work/moved" "folder moved"
  begin "$work/run"
  wait_for 3 "$work/run/metrics.jsonl" || fail "no third record"
  rm "$work/run/lock"
  finish
  [ "$code" -eq 74 ] || fail "lock deleted: exit code $code instead of 74"
  one_sentence "lock deleted"
  train "$work/run" --resume
  finished "$work/run" "lock deleted"
}

whole_run
case $what in
  kill) test_kill ;;
  full | io) test_disk "$what" ;;
  signal) test_signal ;;
  torn) test_torn ;;
  taken) test_taken ;;
  *) echo "crash_test.sh: unknown test '$what'; there are kill, full, io, signal, torn, taken" >&2; exit 2 ;;
esac
if [ $failures -gt 0 ]; then
  echo "crash_test: $what: $failures failures"
  exit 1
fi
echo "crash_test: $what passed"
