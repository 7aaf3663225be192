// Images in a folder as a data set: read and decoded each time they are loaded.
#pragma once

#include <string>

#include "data/dataset.h"
#include "data/folder_index.h"

namespace renorm::data {

// Mean and std are ImageNet's, as is usual for photographs; the fingerprint is of the labels and of the names
// of classes and images. `spec` is left empty.
Description describe_folder(const FolderIndex& index, const TransformOptions& transform);

// Training images are cropped and coloured at random, determined by (options.images.seed, index, ticket)
// alone; test images are the centre of each image. Decoded on options.threads threads, without effect on the
// result.
//
// An image that cannot be read throws DataError, MissingInputError or IoError with its file name, the first
// one of the batch. With OnBadImage::kSkip, training takes the next image of the class instead, after the
// last the first, so labels and sizes of batches do not change; evaluation leaves it out. DataError if
// nothing of a class can be read, or if more than 10 and more than 1 % of the split's files were found bad so
// far; MissingInputError if all of the class, or most of those files, are missing.
Dataset folder_dataset(FolderIndex index, const std::string& spec, const OpenOptions& options);

}  // namespace renorm::data
