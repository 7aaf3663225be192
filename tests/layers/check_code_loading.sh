#!/usr/bin/env bash
# usage: check_code_loading.sh ROOT
# Reads the sources under ROOT/src and ROOT/include. A file that holds code is loaded at one place:
# read_torchscript calls torch::jit::load, decode_model calls read_torchscript, and decode_model is called by
# open_model after its check of --trust-code and by `renorm export` for bytes that it has just made.
set -euo pipefail
cd "$1"

failures=0
# expect PATTERN TEXT: the lines of code with PATTERN, as "FILE: LINE" in order, are TEXT.
expect() {
  local found
  found=$(find src include -name '*.h' -o -name '*.cpp' | sort | xargs grep -nE -e "$1" /dev/null |
    grep -vE '^[^:]+:[0-9]+: *//' | sed -E 's/:[0-9]+: */: /' || true)
  [ "$found" = "$2" ] && return
  printf "lines with '%s':\n%s\nexpected:\n%s\n" "$1" "$found" "$2"
  failures=$((failures + 1))
}

expect '(jit|torch)::load\b|load_from|import_ir_module|load_jit_module|for_mobile|[Pp]ickle' \
  'src/export/torchscript.cpp: result.module = torch::jit::load(stream, torch::Device(torch::kCPU), extra);'
expect 'jit/serialization|jit/mobile|torch/script\.h|torch/serialize\.h' \
  'src/export/torchscript.cpp: #include <torch/csrc/jit/serialization/import.h>'
expect '= read_torchscript\(|return read_torchscript\(|= decode_torchscript\(' \
  'src/export/ready_model.cpp: const TorchScript archive = read_torchscript(bytes, file, kCardFile);'
expect 'check_trusted\(path|[ :]decode_model\(.*\);' \
  'src/cli/export.cpp: const exporting::ReadyModel exported = exporting::decode_model(bytes, options.to, format);
src/export/ready_model.cpp: check_trusted(path, format, options.trust_code);
src/export/ready_model.cpp: return decode_model(read_file(path), path, format);
src/export/ready_model.h: ReadyModel decode_model(const std::string& bytes, const std::string& file, ModelFormat format);'

[ "$failures" -eq 0 ] || exit 1
echo "files with code are loaded at one place"
