// Notifies observers (core/observer.h) that a module is called. Modules whose forward() takes more than one tensor make
// one there, before their SiteScope.
#pragma once

#include "core/observer.h"
#include "nn/module.h"

namespace deft::nn::detail {

class WatchedCall {
 public:
  WatchedCall(const Module& module, const Site& site);
  ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  Observer* observer_;
  ModuleCall call_{};
  Zone zone_;
};

}  // namespace deft::nn::detail
