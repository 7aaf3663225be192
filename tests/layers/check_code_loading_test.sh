#!/usr/bin/env bash
# usage: check_code_loading_test.sh ROOT SCRATCH
# The check of the sources under ROOT finds loaders that are added to a copy of them.
set -euo pipefail
check="$(cd "$(dirname "$0")" && pwd)/check_code_loading.sh"
copy="$2/code_loading"

failures=0
# expect_refused FILE LINE: the check names FILE when LINE is added to it.
expect_refused() {
  rm -rf "$copy"
  mkdir -p "$copy"
  cp -r "$1/src" "$1/include" "$1/python" "$copy"
  printf '%s\n' "$3" >>"$copy/$2"
  if bash "$check" "$copy" >"$copy/out"; then
    echo "accepted in $2: $3"
    failures=$((failures + 1))
  elif ! grep -qF "$2: ${3#"${3%%[! ]*}"}" "$copy/out"; then
    echo "not named: $2: $3"
    failures=$((failures + 1))
  fi
}

expect_refused "$1" src/train/run.cpp '  auto module = torch::jit::load(path);'
expect_refused "$1" src/models/model.cpp 'torch::load(tensors, file);'
expect_refused "$1" src/cli/eval.cpp '  auto value = torch::pickle_load(bytes);'
expect_refused "$1" src/nn/model.cpp '  archive.load_from(file);'
expect_refused "$1" include/renorm/nn/model.h '#include <torch/script.h>'
expect_refused "$1" src/nn/model.cpp '# include <torch/script.h>'
expect_refused "$1" src/cli/predict.cpp '  auto model = exporting::decode_model(read_file(path), path, format);'
expect_refused "$1" src/cli/data.cpp '  const auto script = read_torchscript(bytes, file, name);'
expect_refused "$1" python/renorm/runs.py '    return torch.load(path)'
expect_refused "$1" python/renorm/runs.py '    module = torch.jit.load(path)'
expect_refused "$1" python/renorm/_nets.py 'from torch import load'
expect_refused "$1" python/renorm/model.py '    value = pickle.loads(text)'
rm -rf "$copy"
[ "$failures" -eq 0 ] || exit 1
echo "every added loader is found"
