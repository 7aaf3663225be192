// renorm data folder:DIR: somebody's own images, which are described without opening any of them.
#pragma once

#include "cli/options.h"
#include "data/dataset.h"

namespace renorm::cli {

// `open` is what the index was opened with. Throws DataError if a check finds anything wrong.
void run_folder_data(const DataOptions& options, const data::FolderIndex& index,
                     const data::OpenOptions& open);

}  // namespace renorm::cli
