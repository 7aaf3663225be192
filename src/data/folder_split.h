// People's own images as a data set: read and decoded anew each time they are shown.
#pragma once

#include <string>

#include "data/dataset.h"
#include "data/folder_index.h"

namespace renorm::data {

// Mean and std are ImageNet's, which nets for pictures are usually trained with; the fingerprint is of the
// labels and of the names of classes and images. `spec` is left empty.
Description describe_folder(const FolderIndex& index, const TransformOptions& transform);

// Training images are cropped and coloured at random, as (options.pictures.seed, index, ticket) alone say;
// test images are the middle of each picture. Decoded on options.threads threads, which changes nothing.
//
// A picture that cannot be had throws DataError, MissingInputError or IoError that names its file, the first
// one of the batch. With OnBadImage::kSkip, training takes the next image of the class instead, after the
// last the first, so labels and sizes of batches stay; evaluation leaves it out. DataError if nothing of a
// class can be read, or if more than 10 and more than 1 % of the split's files were found bad so far.
Dataset folder_dataset(FolderIndex index, const std::string& spec, const OpenOptions& options);

}  // namespace renorm::data
