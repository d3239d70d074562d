// The one thing of EXIF that changes pixels.
#pragma once

#include <cstdint>
#include <span>

namespace deft::data {

// Orientation in a TIFF block, as APP1 of a JPEG (after "Exif\0\0") and eXIf of a PNG hold it; 1 if there is none or
// the block is broken.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace deft::data
