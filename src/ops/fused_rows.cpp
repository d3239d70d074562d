#include "ops/fused_rows.h"

#include <algorithm>

#include "base/check.h"
#include "core/tensor_impl.h"
#include "ops/op_table.h"
#include "ops/reduce.h"
#include "runtime/parallel.h"

namespace deft {

namespace {

using Params = FusedRows::Params;

// Values of a strip of rows, which stay in L2. Fixed, so that no result depends on the number of threads.
constexpr int64_t kStripValues = 64 * 1024;

int64_t values_in(const Shape& row) {
  int64_t n = 1;
  for (int d = 0; d < row.size(); ++d) n *= row[d];
  return n;
}

Shape strip_sizes(int64_t rows, const Shape& row) {
  Shape sizes = row;
  sizes.insert(0, rows);
  return sizes;
}

// What one thread needs to run the parts on strips of `rows` rows.
class Worker {
 public:
  Worker(KernelCall& c, int64_t rows) : c_(c), p_(c.params<FusedRows>()), rows_(rows), n_(values_in(p_.row)) {
    int next = 0;
    for (size_t i = 0; i < 3; ++i) {
      const FusedRows::Part& part = p_.part[i];
      if (part.op >= 0) add(i, next);
      next += part.inputs;
    }
  }

  void run(int64_t first_row) {
    for (const Moving& m : moving_) {
      const int64_t bytes = first_row * m.per_row * static_cast<int64_t>(size_of(m.tensor.dtype()));
      m.tensor.impl()->data = static_cast<char*>(m.from) + bytes;
    }
    for (Step& s : steps_) {
      KernelCall call{*s.def, s.inputs, s.count, s.outputs, s.params};
      s.def->cpu(call);
    }
  }

 private:
  static constexpr int kInputs = 8;
  struct Step {
    const OpDef* def;
    int count;
    Tensor in[kInputs];
    const Tensor* inputs[kInputs];
    Tensor outputs[kMaxOutputs];
    const void* params;
  };
  struct Moving {
    Tensor tensor;
    void* from;
    int64_t per_row;
  };

  Tensor strip_of(const Tensor& whole) { return strip_of(whole, strip_sizes(rows_, p_.row), n_); }
  Tensor strip_of(const Tensor& whole, const Shape& sizes, int64_t per_row) {
    Tensor t(make_alias(*whole.impl(), Meta::dense(sizes, whole.dtype(), whole.device()), 0));
    moving_.push_back({t, whole.data_ptr(), per_row});
    return t;
  }
  Tensor scratch(DType dtype) const {
    return Tensor(make_tensor(Meta::dense(strip_sizes(rows_, p_.row), dtype, c_.out().device())));
  }
  // One value per column may come with leading dims of size 1.
  Tensor fixed(const Tensor& t) const {
    if (!t.defined() || t.numel() != n_ || t.dim() <= p_.row.size()) return t;
    return Tensor(make_alias(*t.impl(), Meta::dense(p_.row, t.dtype(), t.device()), 0));
  }

  void add(size_t i, int next) {
    const FusedRows::Part& part = p_.part[i];
    Step& s = steps_.emplace_back();
    s.def = op_at(part.op);
    s.count = part.inputs;
    s.params = part.params.data();
    for (int n = 0; n < part.inputs; ++n) {
      const Tensor& given = *c_.inputs[next + n];
      const bool moves = given.defined() && given.sizes() == c_.in(p_.like).sizes();
      s.in[n] = part.from_last >> n & 1 ? last_ : moves ? strip_of(given) : fixed(given);
      s.inputs[n] = &s.in[n];
    }
    const bool ends = i == 2 || p_.part[2].op < 0;
    if (i == 0) {
      s.outputs[0] = scratch(part.made);
    } else if (i == 1 && FusedRows::reduces(p_)) {
      s.outputs[0] = strip_of(c_.out(0), {rows_}, 1);
    } else if (i == 1) {
      s.outputs[0] = p_.keeps_rows ? strip_of(c_.out(1)) : ends ? strip_of(c_.out(0)) : scratch(part.made);
      add_statistics(s);
    } else {
      s.outputs[0] = strip_of(c_.out(0));
    }
    last_ = s.outputs[0];
  }
  // Mean and deviation of each row, which nobody reads.
  void add_statistics(Step& s) const {
    const DType type = last_type() == DType::f64 ? DType::f64 : DType::f32;
    for (int i = 1; i < s.def->info.outputs; ++i)
      s.outputs[i] = Tensor(make_tensor(Meta::dense({rows_}, type, c_.out().device())));
  }
  DType last_type() const { return p_.part[1].made; }

  KernelCall& c_;
  const Params& p_;
  int64_t rows_, n_;
  std::vector<Step> steps_ = [] {
    std::vector<Step> s;
    s.reserve(3);  // inputs point into it
    return s;
  }();
  std::vector<Moving> moving_;
  Tensor last_;
};

}  // namespace

bool FusedRows::reduces(const Params& p) {
  const OpDef* op = op_at(p.part[1].op);
  return op == &op_def<Sum> || op == &op_def<Mean> || op == &op_def<Amax> || op == &op_def<Amin>;
}

std::array<Meta, 2> FusedRows::infer(std::span<const Meta* const> inputs, Params& p) {
  int32_t count = 0;
  for (const Part& part : p.part) {
    DEFT_CHECK(part.op < 0 || (op_at(part.op) && op_at(part.op)->cpu), ValueError,
               "fused_rows: a part is no op of this library");
    count += part.inputs;
  }
  DEFT_CHECK(p.part[1].op >= 0 && count == static_cast<int32_t>(inputs.size()) && p.like >= 0 && p.like < count,
             ValueError, "fused_rows: {} inputs do not fit its parameters", inputs.size());
  const Meta& like = *inputs[static_cast<size_t>(p.like)];
  const Part& last = p.part[p.part[2].op < 0 ? 1 : 2];
  Shape sizes = like.sizes;
  if (reduces(p)) {
    DEFT_CHECK(p.part[2].op < 0 && !p.keeps_rows && p.row.size() <= sizes.size(), ValueError,
               "fused_rows: nothing comes after a reduction");
    sizes.resize(sizes.size() - p.row.size());
  }
  return {Meta::dense(sizes, last.made, like.device),
          Meta::dense(p.keeps_rows ? like.sizes : Shape{0}, p.part[1].made, like.device)};
}

void FusedRows::cpu(KernelCall& c) {
  const Params& p = c.params<FusedRows>();
  const int64_t n = values_in(p.row), rows = n ? c.in(p.like).numel() / n : 0;
  if (rows == 0) return;
  const int64_t strip = std::clamp<int64_t>(kStripValues / n, 1, rows), strips = (rows + strip - 1) / strip;
  parallel_for(0, strips, 1, [&](int64_t begin, int64_t end) {
    const int64_t whole = std::min(end, rows / strip);
    if (begin < whole) {
      Worker worker(c, strip);
      for (int64_t s = begin; s < whole; ++s) worker.run(s * strip);
    }
    if (whole < end) Worker(c, rows - whole * strip).run(whole * strip);
  });
}

}  // namespace deft
