// The binary versions of CIFAR-10 and CIFAR-100.
#pragma once

#include <cstdint>
#include <string>

#include "data/byte_images.h"

namespace renorm::data {

// Appends the records of one file: `label_bytes` bytes of which the last is the label, then 3x32x32 pixels.
// Throws DataError if the file is empty, its size is no multiple of a record or a label is not below
// `classes`; *images is then unchanged.
void parse_cifar(const std::string& bytes, const std::string& file, int64_t label_bytes, int64_t classes,
                 ByteImages* images);

// `dir` with data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt (names; optional), also
// inside cifar-10-batches-bin. The .bin files may be packed (.bin.gz). Throws MissingInputError, DataError.
ByteDataset read_cifar10(const std::string& dir);
// `dir` with train.bin, test.bin, fine_label_names.txt (optional), also inside cifar-100-binary.
ByteDataset read_cifar100(const std::string& dir);

}  // namespace renorm::data
