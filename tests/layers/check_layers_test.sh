#!/usr/bin/env bash
# Tests that check_layers.sh accepts a valid tree and reports each kind of breach planted in it.
# usage: check_layers_test.sh SCRATCH_FOLDER
set -euo pipefail

check=$(cd "$(dirname "$0")" && pwd)/check_layers.sh
tree=$1/layers_self_test
failures=0

plant() { mkdir -p "$tree/$(dirname "$1")"; printf '#pragma once\n%s\n' "$2" >"$tree/$1"; }

fresh_tree() {
  rm -rf "$tree"
  plant src/kernels/kernels.h '#include <hwy/highway.h>'
  plant src/ops/arguments.cpp '#include "kernels/kernels.h"'
  plant include/renorm/ops/op.h '#include <ATen/ATen.h>'
  plant include/renorm/nn/layer.h '#include <renorm/ops/op.h>'
  plant include/renorm/renorm.h '#include <renorm/nn/layer.h>'
  plant src/record/run.h '#include <nlohmann/json.hpp>'
  plant src/report/page.cpp '#include "record/run.h"'
  plant src/data/set.h '#include <torch/types.h>'
  plant src/data/set.cpp '#include "data/set.h"'
  plant src/data/image.h '#include <vector>'
  plant src/data/image.cpp '#include "data/image.h"'
  plant src/data/draw.cpp '#include "data/image.h"'
  cat >"$tree/src/data/CMakeLists.txt" <<'TEXT'
add_library(data_bytes STATIC
  image.cpp  # not torch.cpp
  )
target_sources(data_bytes PRIVATE draw.cpp)
add_library(data STATIC set.cpp)
add_library(renorm::data ALIAS data)
renorm_use_torch(data)
TEXT
  plant src/cli/main.cpp '#include "report/page.h"'
}

# expect_breach FILE LINE [PLACE]: with that line in that file the check must fail and name the place, by default
# the line.
expect_breach() {
  fresh_tree
  plant "$1" "$2"
  local output status=0
  output=$(bash "$check" "$tree") || status=$?
  if [ $status -ne 1 ] || ! grep -qF "${3:-$1:2:}" <<<"$output"; then
    echo "not caught: $1: $2"
    failures=$((failures + 1))
  fi
}

fresh_tree
bash "$check" "$tree" || { echo "a valid tree was rejected"; failures=1; }
expect_breach src/kernels/bad.cpp '#include <torch/torch.h>'
expect_breach src/kernels/bad.cpp '#  include <c10/util/Exception.h>'
expect_breach src/kernels/simd/bad.h '#include <ATen/Parallel.h>'
expect_breach src/kernels/bad.cpp '#include "ops/arguments.h"'
expect_breach src/kernels/bad.cpp '#include <renorm/ops/op.h>'
expect_breach src/ops/cpu/bad.cpp '#include <renorm/nn/layer.h>'
expect_breach src/ops/bad.cpp '#include <hwy/highway.h>'
expect_breach src/nn/bad.cpp '#include "train/loop.h"'
expect_breach src/data/bad.cpp '#include "models/net.h"'
expect_breach src/models/bad.cpp '#include "data/set.h"'
expect_breach src/report/bad.cpp '#include "train/loop.h"'
expect_breach src/report/bad.cpp '#include <torch/torch.h>'
expect_breach src/record/bad.cpp '#include <ATen/ATen.h>'
expect_breach src/experiments/bad.cpp '#include <c10/util/Exception.h>'
expect_breach src/experiments/bad.cpp '#include "data/set.h"'
expect_breach src/data/image.cpp '#include <torch/types.h>'
expect_breach src/data/image.cpp '#include "data/set.h"'
expect_breach src/data/draw.cpp '#include "data/set.h"'
expect_breach src/data/image.h '#include "data/set.h"' src/data/image.cpp:2:
expect_breach src/data/image.h '#include <ATen/ATen.h>' src/data/draw.cpp:2:
expect_breach src/train/bad.cpp '#include "cli/help.h"'
expect_breach src/nn/bad.cpp '#include "../cli/help.h"'
expect_breach src/unheard_of/bad.cpp '#include <vector>'
expect_breach include/renorm/ops/bad.h '#include "kernels/kernels.h"'
rm -rf "$tree"
[ $failures -eq 0 ] && echo "every planted breach was caught"
exit $failures
