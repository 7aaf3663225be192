// Runs a fuzz target on every file of a folder, without libFuzzer.
// usage: TARGET_fuzz FOLDER
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int tried = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::string& name : renorm::list_folder(argv[i])) {
      const std::string bytes = renorm::read_file((std::filesystem::path(argv[i]) / name).string());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++tried;
    }
  }
  std::printf("%d seeds\n", tried);
  return tried > 0 ? 0 : 1;
}
