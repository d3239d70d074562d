#include <cmath>

#include "kernels/cpu/reduce/reduce_driver.h"

namespace deft::cpu {
namespace {

// Partials of neighbouring ranges are combined pairwise.
bool better(ReduceOp op, double a, double b) {
  if (std::isnan(b)) return false;
  return std::isnan(a) || (op == ReduceOp::argmax ? a > b : a < b);
}

void combine_arg(ReduceOp op, DType acc, Partial& left, const Partial& right) {
  const bool right_wins =
      acc == DType::i64 ? (op == ReduceOp::argmax ? right.j > left.j : right.j < left.j) : better(op, right.a, left.a);
  if (right_wins) left = right;
}
void combine_var(Partial& left, const Partial& right, double n_left, double n_right) {
  const double n = n_left + n_right, delta = right.a - left.a;
  left.a += delta * (n_right / n);
  left.b += right.b + delta * delta * (n_left * (n_right / n));
}
void combine_logsumexp(Partial& left, const Partial& right) {
  if (std::isnan(left.a) || std::isnan(right.a)) {
    left.a = std::numeric_limits<double>::quiet_NaN();
  } else if (left.a >= right.a) {
    if (std::isfinite(left.a)) left.b += right.b * std::exp(right.a - left.a);
  } else {
    left.b = std::isfinite(right.a) ? right.b + left.b * std::exp(left.a - right.a) : right.b;
    left.a = right.a;
  }
}

}  // namespace

Fold fold_of(const ReduceCall& c) {
  switch (c.op) {
    case ReduceOp::prod:
      return Fold::multiply;
    case ReduceOp::max:
    case ReduceOp::any:
      return Fold::max;
    case ReduceOp::min:
    case ReduceOp::all:
      return Fold::min;
    case ReduceOp::norm:
      return !std::isinf(c.param) ? Fold::add : c.param > 0 ? Fold::max : Fold::min;
    default:
      return Fold::add;
  }
}
int64_t wrapping(Fold fold, int64_t a, int64_t b) {
  auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(fold == Fold::add ? x + y : x * y);
}
void combine_fold(Fold fold, Partial& left, const Partial& right) {
  switch (fold) {
    case Fold::add:
      left.a += right.a;
      break;
    case Fold::multiply:
      left.a *= right.a;
      break;
    case Fold::max:
      left.a = (left.a > right.a || left.a != left.a) ? left.a : right.a;
      break;
    case Fold::min:
      left.a = (left.a < right.a || left.a != left.a) ? left.a : right.a;
      break;
  }
  switch (fold) {
    case Fold::add:
    case Fold::multiply:
      left.i = wrapping(fold, left.i, right.i);
      break;
    case Fold::max:
      left.i = std::max(left.i, right.i);
      break;
    case Fold::min:
      left.i = std::min(left.i, right.i);
      break;
  }
}

void combine(const Reduction& r, Partial* left, const Partial* right, int64_t width, int64_t n_left, int64_t n_right) {
  const Fold fold = fold_of(r.call);
  for (int64_t c = 0; c < width; ++c) {
    switch (r.call.op) {
      case ReduceOp::argmax:
      case ReduceOp::argmin:
        combine_arg(r.call.op, r.acc, left[c], right[c]);
        break;
      case ReduceOp::var:
        combine_var(left[c], right[c], static_cast<double>(n_left), static_cast<double>(n_right));
        break;
      case ReduceOp::logsumexp:
        combine_logsumexp(left[c], right[c]);
        break;
      default:
        combine_fold(fold, left[c], right[c]);
    }
  }
}

void combine_pieces(const Reduction& r, Partial* p, int64_t width, int64_t pieces, int64_t piece, int64_t n) {
  for (int64_t step = 1; step < pieces; step *= 2) {
    for (int64_t k = 0; k + step < pieces; k += 2 * step) {
      const int64_t middle = (k + step) * piece, end = std::min(n, (k + 2 * step) * piece);
      combine(r, p + k * width, p + (k + step) * width, width, step * piece, end - middle);
    }
  }
}

double real_result(const Reduction& r, const Partial& p) {
  const double n = static_cast<double>(r.count());
  switch (r.call.op) {
    case ReduceOp::mean:
      return p.a / n;
    case ReduceOp::var:
      return p.b / std::max(0.0, n - r.call.param);
    case ReduceOp::logsumexp:
      return p.a + (std::isfinite(p.a) ? std::log(p.b) : 0.0);
    case ReduceOp::norm:
      if (r.call.param == 2) return std::sqrt(p.a);
      if (r.call.param == 0 || r.call.param == 1 || std::isinf(r.call.param)) return p.a;
      return std::pow(p.a, 1 / r.call.param);
    default:
      return p.a;
  }
}

void finish(const Reduction& r, const Partial& p, int64_t out_offset) {
  char* out = static_cast<char*>(r.call.out.data) + out_offset * static_cast<int64_t>(size_of(r.call.out.dtype));
  if (r.acc == DType::i64 || r.call.op == ReduceOp::argmax || r.call.op == ReduceOp::argmin) {
    convert(&p.i, DType::i64, out, r.call.out.dtype, 1);
  } else {
    const double v = real_result(r, p);
    convert(&v, DType::f64, out, r.call.out.dtype, 1);
  }
}

void gather_raw(const Reduction& r, const char* src, int64_t stride, char* dst, int64_t n) {
  dispatch_bits(r.call.in.dtype, [&]<class T>() {
    copy_bits(reinterpret_cast<const T*>(src), stride, reinterpret_cast<T*>(dst), 1, n);
  });
}

const void* fetch_run(const Reduction& r, int64_t offset, int64_t stride, int64_t n, char* buffer, char* raw) {
  const char* src = r.in_at(offset);
  const DType from = r.call.in.dtype;
  if (stride == 1) {
    if (from == r.storage) return src;
    convert(src, from, buffer, r.storage, static_cast<size_t>(n));
  } else if (from == r.storage) {
    gather_raw(r, src, stride, buffer, n);
  } else {
    gather_raw(r, src, stride, raw, n);
    convert(raw, from, buffer, r.storage, static_cast<size_t>(n));
  }
  return buffer;
}

}  // namespace deft::cpu
