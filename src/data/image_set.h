// Labelled images in memory, and the files they come from.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace deft::data {

struct ImageSet {
  Tensor images;  // u8 [n, channels, height, width]
  Tensor labels;  // i64 [n]
  int64_t classes = 0;
  int64_t size() const { return labels.defined() ? labels.numel() : 0; }
};

// A batch ready for a model: images of the given rows as floats, (x / 255 - mean) / std.
struct Normalization {
  float mean = 0.5f, std = 0.5f;
};
Tensor take_images(const ImageSet& set, const std::vector<int64_t>& rows, Normalization normalization = {});
Tensor take_labels(const ImageSet& set, const std::vector<int64_t>& rows);

// An IDX file (the MNIST family), also gzipped: u8 of any shape. LoadError with the offset if it is anything else.
Tensor read_idx(const std::string& path);
// {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] in a folder.
ImageSet read_mnist(const std::string& folder, bool train);
// data_batch_1..5.bin, test_batch.bin (10 classes), or train.bin, test.bin (100 classes) in a folder.
ImageSet read_cifar(const std::string& folder, bool train);

// Where `./dev setup` and Debian put Fashion-MNIST; ValueError that says how to get it if it is not there.
std::string fashion_folder();

}  // namespace deft::data
