#include "kernels/cpu/reduce/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/strided_data.h"

namespace deft::cpu {
namespace {

using testing::Block;
using testing::kEveryDType;

void check(Block& in, Block& out, const std::vector<int64_t>& sizes, int dim, ScanOp op, bool reverse) {
  ScanCall call{};
  call.ndim = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), call.sizes);
  call.dim = dim;
  call.in = in.operand();
  call.out = out.operand();
  call.op = op;
  call.reverse = reverse;
  std::vector<double> x;
  for (int64_t i = 0; i < in.total(); ++i) x.push_back(in.at(i));  // before the call: it may work in place
  scan(call);
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const int64_t n = sizes[static_cast<size_t>(dim)];
  for (int64_t first = 0; first < in.total(); ++first) {
    if (first / inner % n != 0) continue;
    double total = op == ScanOp::sum ? 0 : 1;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = first + (reverse ? n - 1 - k : k) * inner;
      const double v = x[static_cast<size_t>(i)];
      total = op == ScanOp::sum ? total + v : total * v;
      const double tol = epsilon_of(out.dtype()) * std::fabs(total);
      if (!(std::fabs(out.at(i) - total) <= tol)) FAIL() << i << ": " << out.at(i) << " want " << total;
    }
  }
  ASSERT_TRUE(out.guards_intact());
}

TEST(Scan, RandomViews) {
  std::mt19937 rng(31);
  for (int trial = 0; trial < 1500; ++trial) {
    std::vector<int64_t> sizes(1 + rng() % 4);
    const size_t longest = sizes.size() > 2 ? 9 : sizes.size() > 1 ? 70 : 1000;
    for (int64_t& s : sizes) s = rng() % 20 == 0 ? 0 : 1 + rng() % longest;
    const DType from = kEveryDType[rng() % 9];
    const ScanOp op = rng() % 3 ? ScanOp::sum : ScanOp::prod;
    Block in(from, sizes, testing::random_strides(sizes, rng, false), rng() % 3);
    for (int64_t i = 0; i < in.total(); ++i) in.set(i, op == ScanOp::sum ? rng() % 3 : rng() % 9 != 0);
    Block out(is_floating(from) ? (rng() % 2 ? f32 : f64) : i64, sizes, testing::random_strides(sizes, rng, true));
    check(in, out, sizes, static_cast<int>(rng() % sizes.size()), op, rng() % 2);
    if (HasFatalFailure()) return;
  }
}

TEST(Scan, LargeAndInPlace) {
  for (int dim : {0, 1, 2}) {
    const std::vector<int64_t> sizes = {50, 60, 70};
    Block x(f32, sizes, Block::row_major(sizes)), y(f32, sizes, Block::row_major(sizes));
    x.fill_random(4, 0.5, 1.5);
    check(x, y, sizes, dim, ScanOp::sum, false);
    check(x, x, sizes, dim, ScanOp::sum, true);
  }
}

}  // namespace
}  // namespace deft::cpu
