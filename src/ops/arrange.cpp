// Functions that arrange tensors, made of views and cat(): tile, hstack, vstack, meshgrid, diag, windows.
#include "base/check.h"
#include "core/describe.h"
#include "ops/creation.h"
#include "ops/shape_ops.h"
#include "ops/view.h"

namespace deft {

Tensor tile(const Tensor& x, IntList counts, Site site) {
  detail::check_defined(x, "tile");
  std::vector<int64_t> all(counts.begin(), counts.end());
  int missing = x.dim() - static_cast<int>(all.size());
  if (missing > 0) all.insert(all.begin(), static_cast<size_t>(missing), 1);
  return repeat(x, all, site);
}

namespace {

// At least `rank` dims; new ones come first.
std::vector<Tensor> deepened(std::span<const Tensor> tensors, int rank, const char* op) {
  DEFT_CHECK(!tensors.empty(), ValueError, "{}: the list of tensors is empty", op);
  std::vector<Tensor> all;
  for (const Tensor& given : tensors) {
    detail::check_defined(given, op);
    Tensor t = given;
    while (t.dim() < rank) t = t.unsqueeze(0);
    all.push_back(t);
  }
  return all;
}

}  // namespace

Tensor hstack(std::span<const Tensor> tensors, Site site) {
  SiteScope scope(site);
  std::vector<Tensor> all = deepened(tensors, 1, "hstack");
  return cat(all, all[0].dim() == 1 ? 0 : 1, site);
}
Tensor vstack(std::span<const Tensor> tensors, Site site) {
  SiteScope scope(site);
  return cat(deepened(tensors, 2, "vstack"), 0, site);
}
Tensor hstack(std::initializer_list<Tensor> tensors, Site site) {
  return hstack(std::span<const Tensor>(tensors.begin(), tensors.size()), site);
}
Tensor vstack(std::initializer_list<Tensor> tensors, Site site) {
  return vstack(std::span<const Tensor>(tensors.begin(), tensors.size()), site);
}

std::vector<Tensor> meshgrid(std::span<const Tensor> tensors, MeshIndexing indexing, Site site) {
  SiteScope scope(site);
  std::vector<Tensor> lines = deepened(tensors, 1, "meshgrid");
  Shape sizes;
  for (const Tensor& t : lines) {
    DEFT_CHECK(t.dim() == 1, ShapeError, "meshgrid: takes tensors of at most one dimension, found shape {}",
               to_string(t.sizes()));
    DEFT_CHECK(t.dtype() == lines[0].dtype() && t.device() == lines[0].device(), DTypeError,
               "meshgrid: found {} and {}; convert them to one type and device with to()", describe(lines[0].meta()),
               describe(t.meta()));
    sizes.push_back(t.numel());
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int64_t> own(lines.size(), 1);
    own[i] = lines[i].numel();
    Tensor grid = lines[i].reshape(own).expand(sizes);
    grids.push_back(indexing == MeshIndexing::xy && lines.size() > 1 ? grid.transpose(0, 1) : grid);
  }
  return grids;
}
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors, MeshIndexing indexing, Site site) {
  return meshgrid(std::span<const Tensor>(tensors.begin(), tensors.size()), indexing, site);
}

Tensor diag(const Tensor& x, int64_t diagonal, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "diag");
  DEFT_CHECK(x.dim() == 1 || x.dim() == 2, ShapeError, "diag: takes 1-d or 2-d tensors, found shape {}",
             to_string(x.sizes()));
  if (x.dim() == 2) return x.diagonal(diagonal).clone(MemoryFormat::contiguous);
  constexpr int64_t kMost = int64_t{1} << 31;  // its square still counts
  DEFT_CHECK(diagonal > -kMost && diagonal < kMost, ShapeError, "diag: diagonal {} is beyond any matrix", diagonal);
  int64_t off = diagonal < 0 ? -diagonal : diagonal, n = x.numel() + off;
  Tensor blank = zeros({n, n}, {x.dtype(), x.device()});
  return as_strided_scatter(blank, x, {x.numel()}, {n + 1}, diagonal < 0 ? off * n : off);
}

Tensor Tensor::tile(IntList counts, Site site) const { return deft::tile(*this, counts, site); }
Tensor Tensor::diag(int64_t diagonal, Site site) const { return deft::diag(*this, diagonal, site); }

Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step, Site site) const {
  detail::check_defined(*this, "unfold");
  int at = static_cast<int>(normalize_dim(dim, this->dim(), "unfold"));
  int64_t length = this->dim() ? sizes()[at] : 1, apart = this->dim() ? strides()[at] : 1;
  DEFT_CHECK(size >= 0 && size <= length && step > 0, ValueError,
             "unfold: windows of {} elements, {} apart, in the {} of dimension {}; sizes lie in 0 to {}, steps are "
             "positive",
             size, step, length, at, length);
  Shape windows = sizes(), by = strides();
  if (this->dim()) {
    windows[at] = (length - size) / step + 1;
    by[at] = windows[at] > 1 ? apart * step : apart;  // a step beyond the end is never taken
  }
  windows.push_back(size);
  by.push_back(apart);
  return deft::as_strided(*this, windows, by, 0, site);
}

}  // namespace deft
