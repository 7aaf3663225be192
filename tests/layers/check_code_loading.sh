#!/usr/bin/env bash
# usage: check_code_loading.sh ROOT
# Reads the sources under ROOT/src, ROOT/include and ROOT/python. A file that holds code is loaded at one place:
# read_torchscript calls torch::jit::load, decode_model calls read_torchscript, and decode_model is called by
# open_model after its check of --trust-code and by `renorm export` for bytes that it has just made. Python loads
# the compiled library and no other code; one of its messages names a loader.
set -euo pipefail
cd "$1"

failures=0
# expect FILES PATTERN TEXT: the lines of code with PATTERN, as "FILE: LINE" in order, are TEXT.
expect() {
  local found
  found=$(xargs grep -nE -e "$2" /dev/null <<<"$1" |
    grep -vE '^[^:]+\.(h|cpp):[0-9]+: *//|^[^:]+\.py:[0-9]+: *#' | sed -E 's/:[0-9]+: */: /' || true)
  [ "$found" = "$3" ] && return
  printf "lines with '%s':\n%s\nexpected:\n%s\n" "$2" "$found" "$3"
  failures=$((failures + 1))
}

cpp=$(find src include -name '*.h' -o -name '*.cpp' | sort)
python=$(find python -name '*.py' | sort)

expect "$cpp" '(jit|torch)::load\b|load_from|import_ir_module|load_jit_module|for_mobile|[Pp]ickle' \
  'src/export/torchscript.cpp: result.module = torch::jit::load(stream, torch::Device(torch::kCPU), extra);'
expect "$cpp" 'jit/serialization|jit/mobile|torch/script\.h|torch/serialize\.h' \
  'src/export/torchscript.cpp: #include <torch/csrc/jit/serialization/import.h>'
expect "$cpp" '= read_torchscript\(|return read_torchscript\(|= decode_torchscript\(' \
  'src/export/ready_model.cpp: const TorchScript archive = read_torchscript(bytes, file, kCardFile);'
expect "$cpp" 'check_trusted\(path|[ :]decode_model\(.*\);' \
  'src/cli/export.cpp: const exporting::ReadyModel exported = exporting::decode_model(bytes, options.to, format);
src/export/ready_model.cpp: check_trusted(path, format, options.trust_code);
src/export/ready_model.cpp: return decode_model(read_file(path), path, format);
src/export/ready_model.h: ReadyModel decode_model(const std::string& bytes, const std::string& file, ModelFormat format);'
expect "$python" '\.load\b|load_library|[Pp]ickle\.|(import|from) .*(pickle|marshal|\bload\b)|\bexec\(' \
  'python/renorm/_library.py: torch.ops.load_library(str(library))
python/renorm/runs.py: "its author, use torch.jit.load"'

[ "$failures" -eq 0 ] || exit 1
echo "files with code are loaded at one place"
