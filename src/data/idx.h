// The idx files of MNIST and Fashion-MNIST.
#pragma once

#include <string>
#include <vector>

#include "data/byte_images.h"
#include "data/packed_file.h"

namespace renorm::data {

// `images` is the content of an idx file of unsigned bytes [count][rows][columns] and `labels` one of
// [count]; the file names are for the errors. Labels must be below `classes`. Throws DataError with file,
// place and what was expected.
ByteImages parse_idx(const std::string& images, const std::string& images_file, const std::string& labels,
                     const std::string& labels_file, int64_t classes);

// `dir` with {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz. Throws MissingInputError, DataError.
ByteDataset read_mnist(const std::string& dir, const std::vector<std::string>& classes);

const std::vector<std::string>& mnist_classes();
const std::vector<std::string>& fashion_mnist_classes();

}  // namespace renorm::data
