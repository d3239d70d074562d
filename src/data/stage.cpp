#include "data/stage.h"

namespace deft::data {

const char* name_of(Stage stage) {
  static constexpr const char* kNames[kStages] = {"read", "decode", "transform", "collate", "wait", "copy"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace deft::data
