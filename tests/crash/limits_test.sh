#!/usr/bin/env bash
# A small `renorm train` under the limits of the shell and on a file system without locks: it ends with one
# sentence and a documented code, leaves no temporary file, and can be resumed.
# usage: limits_test.sh RENORM FAULT_LIBRARY TEST
#   memory [MB]    'ulimit -v' from 300 MB to 2 GB in steps of MB (150)
#   file [KB]      'ulimit -f' from 0 to 32 KB in steps of KB (8)
#   lock           flock is not supported
#   threads        a run that was saved with 1,024 threads
set -u
renorm=$1
library=$(realpath "$2")
what=$3
step=${4:-}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
export RENORM_CACHE=$work/cache
export NO_COLOR=1
unset RENORM_FAULT RENORM_FAULT_AT RENORM_FAULT_DIR RENORM_FAULT_LOG
failures=0
# Only a hang takes this long.
hang=300
settings=(--data strokes:classes=10,train=20,test=5,size=12 --model convnet:8/2,16/2 --minibatch 10
  --steps 20 --log-every 1 --eval-every 10 --quiet)

fail() {
  echo "FAILED: $*"
  sed 's/^/  stderr: /' "$work/err" 2>/dev/null
  failures=$((failures + 1))
}

# limited FLAG VALUE ARGUMENT...: `renorm` under a limit, sets `code`. The error goes through a pipe, because
# 'ulimit -f' holds for every file.
limited() {
  local flag=$1 value=$2
  shift 2
  (
    ulimit "$flag" "$value"
    exec timeout -k 1 $hang "$renorm" "$@" 2>&1 >/dev/null
  ) | cat >"$work/err"
  code=${PIPESTATUS[0]}
}

train() {
  local folder=$1
  shift
  "$renorm" train --out "$folder" "${settings[@]}" --threads 1 "$@" >/dev/null 2>"$work/err"
  code=$?
}

# ended TITLE CODE...: the last process ended with one of the codes, and with one sentence unless it is 0.
ended() {
  local title=$1
  shift
  case " $* " in
    *" $code "*) ;;
    *) fail "$title: exit code $code instead of one of $*" ;;
  esac
  local lines
  lines=$(wc -l <"$work/err")
  [ "$code" -eq 0 ] || [ "$lines" -eq 1 ] || fail "$title: $lines lines on standard error instead of one"
}

# no_temporary_file TITLE
no_temporary_file() {
  local left
  left=$(find "$work" -mindepth 1 -name '*tmp*')
  [ -z "$left" ] || fail "$1: left behind: $left"
}

# resumes DIR TITLE: without the limit the run ends as the whole one did.
resumes() {
  train "$1" --resume
  [ "$code" -eq 0 ] || fail "$2: the resumed run ended with exit code $code"
  cmp -s "$work/whole/checkpoints/last/model.safetensors" "$1/checkpoints/last/model.safetensors" ||
    fail "$2: model.safetensors differs from that of a run without a limit"
  rm -rf "$1"
}

train "$work/whole"
[ "$code" -eq 0 ] || fail "the run without a limit ended with exit code $code"

case $what in
  memory)
    # BLAS allocates a buffer per thread, by default one per CPU.
    export OPENBLAS_NUM_THREADS=2
    # 127: the dynamic linker could not load LibTorch.
    for ((mb = 300; mb <= 2000; mb += ${step:-150})); do
      limited -v $((mb * 1024)) train --out "$work/run" "${settings[@]}" --threads 2
      ended "ulimit -v of $mb MB" 0 70 127
      echo "ulimit -v of $mb MB: code $code $(head -c 200 "$work/err")"
      rm -rf "$work/run"
    done
    # oneDNN prepares the convolutions of a larger net. It has no errors for a lack of memory.
    for ((mb = 900; mb <= 1200; mb += ${step:-50})); do
      limited -v $((mb * 1024)) train --out "$work/run" --data strokes:classes=10,train=20,test=5 --steps 2 --threads 2 \
        --quiet
      ended "inception-small, ulimit -v of $mb MB" 0 70 127
      echo "inception-small, ulimit -v of $mb MB: code $code $(head -c 200 "$work/err")"
      rm -rf "$work/run"
    done
    limited -v $((8 << 20)) train --out "$work/run" "${settings[@]}" --threads 2
    ended "ulimit -v of 8 GB" 0
    rm -rf "$work/run"
    # With memory left, a fault is a defect, and the signal shows it.
    (
      ulimit -c 0 -v $((8 << 20))
      exec "$renorm" train --out "$work/run" --data strokes:classes=10,train=20,test=5,size=12 --model convnet:8/2,16/2 \
        --steps 1000000 --log-every 1 --threads 2 --quiet
    ) >/dev/null 2>"$work/err" &
    faulty=$!
    for ((i = 0; i < 10 * hang; i++)); do
      [ -s "$work/run/metrics.jsonl" ] && break
      sleep 0.1
    done
    kill -SEGV $faulty
    wait $faulty
    code=$?
    [ "$code" -eq $((128 + 11)) ] || fail "a fault with memory left: exit code $code instead of that of SIGSEGV"
    if grep -q memory "$work/err"; then fail "a fault with memory left is blamed on memory"; fi
    ;;
  file)
    for ((kb = 0; kb <= 32; kb += ${step:-8})); do
      limited -f $kb train --out "$work/run" "${settings[@]}" --threads 1
      ended "ulimit -f of $kb KB" 0 73 74
      no_temporary_file "ulimit -f of $kb KB"
      echo "ulimit -f of $kb KB: code $code"
      resumes "$work/run" "ulimit -f of $kb KB"
    done
    ;;
  lock)
    RENORM_FAULT=lock LD_PRELOAD=$library train "$work/run"
    ended "a file system without locks" 73
    grep -q "cannot lock '$work/run/lock': .*; choose an --out on a file system with locks" "$work/err" ||
      fail "a file system without locks: no advice"
    resumes "$work/run" "a file system without locks"
    # Each of two processes reports it before they meet.
    for rank in 0 1; do
      title="rank $rank on a file system without locks"
      RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 RENORM_FAULT=lock LD_PRELOAD=$library \
        train "$work/run" --workers 2 --rendezvous "$work/meeting"
      ended "$title" 73
      grep -q "cannot lock '$work/meeting/.*; choose a --rendezvous on a file system with locks" "$work/err" ||
        fail "$title: no advice"
    done
    ;;
  threads)
    last=$work/whole/checkpoints/last
    sed -i 's/"threads": 1,/"threads": 1024,/' "$last/state.json"
    (cd "$last" && sha256sum -- *.safetensors state.json >SHA256SUMS)
    # 1,024 threads need more than a hundred gigabytes of address space.
    limited -v $((2 << 20)) eval "$work/whole" --threads 1
    ended "eval --threads 1 of a run with 1,024 threads" 0
    limited -v $((2 << 20)) export "$work/whole" --to "$work/model.safetensors"
    ended "export of a run with 1,024 threads" 0
    limited -v $((2 << 20)) eval "$work/whole"
    ended "eval of a run with 1,024 threads" 70
    grep -q "1024 threads and BLAS need .* use fewer --threads" "$work/err" || fail "too many threads: no advice"
    ;;
  *)
    echo "limits_test.sh: unknown test '$what'" >&2
    exit 2
    ;;
esac

[ "$failures" -eq 0 ] && echo "all passed"
exit "$((failures > 0))"
