// Images on their way into a batch: JPEG files of 500 x 375, decoded, cut, flipped and normalised, against
// libjpeg-turbo's full decode of the same files in the same run, and against PyTorch's DataLoader with torchvision and
// PIL.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace deft::bench {

struct DataImagesOptions {
  int files = 64;
  int rounds = 8;    // over all files
  int workers = 2;   // of the comparison with the peer
  std::string peer;  // "python3 bench/peer_images.py"; see peer.h
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// One row per kind of work: images_per_second and cpu_ms_per_image of one core, full_decode_ratio (above 1: faster than
// the full decode alone); for several workers images_per_second of all, and peer_ratio. UnsupportedError without
// libjpeg-turbo.
Report measure_data_images(const DataImagesOptions& options);

}  // namespace deft::bench
