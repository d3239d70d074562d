// A cache of tensors derived from the bytes of another: weights packed for GEMM and convolution, and weights converted
// by autocast.
//
// Note [Derived]: an entry is valid while its storage lives and its version stands. All aliases share the version, so
// every write counts, in every mode. Nothing is cached for bytes without versions, or that others may write: inference
// tensors, from_blob() but for trust_versions(), tensors given to another library. data<T>() drops the entries; writes
// through a pointer from before that go unnoticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace deft {

class Tensor;
struct Storage;

enum class DerivedKind : uint8_t { gemm_b, conv_weight, cast, gemv_panels, rounded_copy };

// What is derived, and how. A tensor has one entry per form.
struct DerivedForm {
  DerivedKind kind;
  std::array<int64_t, 3> details{};
  bool operator==(const DerivedForm&) const = default;
};
struct Derived {
  std::shared_ptr<const void> object;
  int64_t bytes = 0;
};

// The cached object derived from `from`, or a new one. Null: do without. That is so at the first call with a tensor and
// version, the only one for activations and for weights in training, which change with every step; also where nothing
// may be cached. `make` may be called by several threads at once.
std::shared_ptr<const void> find_derived(const Tensor& from, const DerivedForm& form, FunctionRef<Derived()> make);

// For owners that update the derived object with the bytes, also of weights in training (core/rounded_copy.h). The
// entry of this tensor and version, or null; with `outdated` also where the tensor was written since.
std::shared_ptr<const void> kept_derived(const Tensor& from, const DerivedForm& form, bool outdated = false);
// Replaces the entry by one for the current version. Does nothing where nothing may be cached.
void keep_derived(const Tensor& from, const DerivedForm& form, const Derived& made);

// Whether anything derived from `from` may be cached at all.
bool may_keep_derived(const Tensor& from);

// Most bytes cached; 0 turns the cache off. The least recently used entry goes first, but not for a tensor seen even
// longer ago: a model larger than the limit keeps a part of its weights instead of none. Default: 1 GiB, or
// DEFT_PACK_CACHE=bytes. The bytes count as workspace in memory_live().
void set_derived_cache_limit(size_t bytes);
size_t derived_cache_limit();
void clear_derived_cache();

struct DerivedCacheStats {
  int64_t hits = 0, misses = 0;    // calls that found an entry; that did not
  int64_t kept = 0;                // objects inserted
  int64_t dropped = 0;             // removed by a write, the end of their storage or clear_derived_cache()
  int64_t evicted = 0;             // removed because of the limit
  int64_t objects = 0, bytes = 0;  // there now
};
DerivedCacheStats derived_cache_stats();

// Bytes of another owner that calls bump_version() at every write: tensors derived from them may be cached.
void trust_versions(Storage& external) noexcept;

// Drops the entries of these bytes.
void forget_derived(Storage& storage) noexcept;
// The same, and nothing is cached any more: another owner may write them.
void keep_nothing_derived(Storage& storage) noexcept;

}  // namespace deft
