// Input: the SHA256SUMS of a checkpoint that has two other files. All are read from disk.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz.h"
#include "train/checkpoint.h"

using namespace renorm;

namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// A folder of this process, in memory if possible, with everything but SHA256SUMS.
fs::path make_checkpoint() {
  const fs::path base = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  static const struct Folder {
    fs::path path;
    ~Folder() { fs::remove_all(path); }
  } folder{base / ("renorm-fuzz-" + std::to_string(getpid()))};
  train::RunState state;
  state.step = 7;
  fs::create_directories(folder.path / "step-000000007");
  put(folder.path / "step-000000007" / "state.json", train::to_json(state));
  put(folder.path / "step-000000007" / "model.safetensors", "model");
  return folder.path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fs::path folder = make_checkpoint();
  put(folder / "step-000000007" / "SHA256SUMS", fuzz::text_of(data, size));
  fuzz::accepts(
      [&] {
        const train::Checkpoint read = train::CheckpointFolder(folder).read(7);
        fuzz::expect(read.tensors.at("model.safetensors") == "model", "another tensor");
      },
      folder);
  return 0;
}
