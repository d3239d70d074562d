// Views, joining and cutting, indexing by tensors, order.
#include "bind_op.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

int64_t dim_of(const Tensor& x, int64_t dim, const char* who) {
  const int64_t rank = std::max(x.dim(), 1);
  DEFT_CHECK(dim >= -rank && dim < rank, IndexError, "{}: dim {} is out of range, expected {} to {}", who, dim, -rank,
             rank - 1);
  return dim < 0 ? dim + rank : dim;
}

Tensor squeeze_dims(const Tensor& x, const Dims& dims, const Site& s) {
  uint64_t drop = 0;
  for (size_t i = 0; i < dims.ints.size(); ++i) drop |= uint64_t{1} << dim_of(x, dims.ints[i], "squeeze");
  Tensor r = x;
  for (int i = x.dim() - 1; i >= 0; --i)
    if (drop >> i & 1) r = squeeze(r, i, s);
  return r;
}

// movedim() with several dims: the others keep their order.
Tensor move_dims(const Tensor& x, const Ints& from, const Ints& to, const Site& s) {
  DEFT_CHECK(from.size() == to.size(), ShapeError, "movedim: found {} source dims and {} destinations", from.size(),
             to.size());
  const int rank = x.dim();
  std::vector<int64_t> order(static_cast<size_t>(rank), -1);
  std::vector<bool> taken(static_cast<size_t>(rank));
  for (size_t i = 0; i < from.size(); ++i) {
    auto source = static_cast<size_t>(dim_of(x, from[i], "movedim"));
    auto target = static_cast<size_t>(dim_of(x, to[i], "movedim"));
    DEFT_CHECK(!taken[source] && order[target] < 0, ValueError, "movedim: a dim is named twice");
    order[target] = static_cast<int64_t>(source);
    taken[source] = true;
  }
  size_t next = 0;
  for (int64_t& o : order) {
    if (o >= 0) continue;
    while (taken[next]) ++next;
    o = static_cast<int64_t>(next++);
  }
  return permute(x, order, s);
}

void bind_views() {
  bind("view(input, *shape)", kMethod, [](const Tensor& x, Ints shape, Site s) { return view(x, shape, s); });
  bind(
      "reshape(input, *shape)", kEverywhere, [](const Tensor& x, Ints shape, Site s) { return reshape(x, shape, s); },
      "view");
  bind("permute(input, *dims)", kEverywhere, [](const Tensor& x, Ints dims, Site s) { return permute(x, dims, s); });
  bind(
      "transpose(input, dim0, dim1)", kEverywhere,
      [](const Tensor& x, int64_t a, int64_t b, Site s) { return transpose(x, a, b, s); }, "permute");
  bind(
      "t(input)", kEverywhere, [](const Tensor& x, Site s) { return x.dim() < 2 ? x : x.t(s); }, "permute");
  bind("expand(input, *size)", kMethod, [](const Tensor& x, Ints size, Site s) { return expand(x, size, s); });
  bind(
      "expand_as(input, other)", kMethod,
      [](const Tensor& x, const Tensor& other, Site s) { return expand(x, other.sizes(), s); }, "expand");
  bind(
      "broadcast_to(input, *size)", kEverywhere,
      [](const Tensor& x, Ints size, Site s) { return broadcast_to(x, size, s); }, "expand");
  bind(
      "view_as(input, other)", kMethod,
      [](const Tensor& x, const Tensor& other, Site s) { return view(x, other.sizes(), s); }, "view");
  bind(
      "reshape_as(input, other)", kMethod,
      [](const Tensor& x, const Tensor& other, Site s) { return reshape(x, other.sizes(), s); }, "view");
  bind("squeeze(input, *dim)", kEverywhere, [](const Tensor& x, Dims dim, Site s) {
    if (dim.all) return squeeze(x, s);
    return squeeze_dims(x, dim, s);
  });
  bind("unsqueeze(input, dim)", kEverywhere, [](const Tensor& x, int64_t dim, Site s) { return unsqueeze(x, dim, s); });
  bind(
      "flatten(input, start_dim=0, end_dim=-1)", kEverywhere,
      [](const Tensor& x, int64_t start, int64_t end, Site s) { return flatten(x, start, end, s); }, "view");
  bind(
      "unflatten(input, dim, sizes)", kEverywhere,
      [](const Tensor& x, int64_t dim, Ints sizes, Site s) { return unflatten(x, dim, sizes, s); }, "view");
  bind(
      "ravel(input)", kEverywhere, [](const Tensor& x, Site s) { return reshape(x, {-1}, s); }, "view");
  bind("select(input, dim, index)", kEverywhere,
       [](const Tensor& x, int64_t dim, int64_t index, Site s) { return select(x, dim, index, s); });
  bind(
      "narrow(input, dim, start, length)", kEverywhere,
      [](const Tensor& x, int64_t dim, int64_t start, int64_t length, Site s) {
        return narrow(x, dim, start, length, s);
      },
      "slice");
  bind(
      "movedim(input, source, destination)", kEverywhere,
      [](const Tensor& x, Ints source, Ints destination, Site s) { return move_dims(x, source, destination, s); },
      "permute");
  bind("diagonal(input, offset=0, dim1=0, dim2=1)", kEverywhere,
       [](const Tensor& x, int64_t offset, int64_t a, int64_t b, Site s) { return diagonal(x, offset, a, b, s); });
  bind("as_strided(input, size, stride, storage_offset=None)", kEverywhere,
       [](const Tensor& x, Ints size, Ints stride, std::optional<int64_t> offset, Site s) {
         return as_strided(x, size, stride, offset.value_or(x.storage_offset()) - x.storage_offset(), s);
       });
  bind(
      "unfold(input, dimension, size, step)", kMethod,
      [](const Tensor& x, int64_t dim, int64_t size, int64_t step, Site s) { return x.unfold(dim, size, step, s); },
      "as_strided");
}

void bind_cuts() {
  bind(
      "split(tensor, split_size_or_sections, dim=0)", kEverywhere,
      [](const Tensor& x, Object sizes, int64_t dim, Site s) {
        if (is_integer(sizes.p)) return Returns{binding::give({}, split(x, to_int(sizes.p), dim, s))};
        return Returns{binding::give({}, split(x, to_int_vector(sizes.p), dim, s))};
      },
      "slice");
  bind(
      "chunk(input, chunks, dim=0)", kEverywhere,
      [](const Tensor& x, int64_t chunks, int64_t dim, Site s) { return chunk(x, chunks, dim, s); }, "slice");
  bind(
      "unbind(input, dim=0)", kEverywhere, [](const Tensor& x, int64_t dim, Site s) { return unbind(x, dim, s); },
      "select");
  bind("cat(tensors, dim=0)", kFunction,
       [](std::vector<Tensor> tensors, int64_t dim, Site s) { return cat(std::span<const Tensor>(tensors), dim, s); });
  bind("stack(tensors, dim=0)", kFunction, [](std::vector<Tensor> tensors, int64_t dim, Site s) {
    return stack(std::span<const Tensor>(tensors), dim, s);
  });
  bind(
      "hstack(tensors)", kFunction,
      [](std::vector<Tensor> tensors, Site s) { return hstack(std::span<const Tensor>(tensors), s); }, "cat");
  bind(
      "vstack(tensors)", kFunction,
      [](std::vector<Tensor> tensors, Site s) { return vstack(std::span<const Tensor>(tensors), s); }, "cat");
  bind(
      "_meshgrid(tensors, indexing='ij')", kPrivate,
      [](std::vector<Tensor> tensors, std::string indexing, Site s) {
        static constexpr Choice<MeshIndexing> kIndexings[] = {{"ij", MeshIndexing::ij}, {"xy", MeshIndexing::xy}};
        return meshgrid(std::span<const Tensor>(tensors), choose(indexing, kIndexings), s);
      },
      "expand");
  bind("repeat(input, *repeats)", kMethod, [](const Tensor& x, Ints repeats, Site s) { return repeat(x, repeats, s); });
  bind(
      "tile(input, *dims)", kEverywhere, [](const Tensor& x, Ints dims, Site s) { return tile(x, dims, s); }, "repeat");
  bind("repeat_interleave(input, repeats, dim=None)", kEverywhere,
       [](const Tensor& x, int64_t repeats, std::optional<int64_t> dim, Site s) {
         return dim ? repeat_interleave(x, repeats, *dim, s) : repeat_interleave(reshape(x, {-1}, s), repeats, 0, s);
       });
  bind("flip(input, *dims)", kEverywhere, [](const Tensor& x, Ints dims, Site s) { return flip(x, dims, s); });
  bind("roll(input, shifts, dims=None)", kEverywhere,
       [](const Tensor& x, Ints shifts, std::optional<Ints> dims, Site s) {
         if (!dims || dims->size() == 0) {
           DEFT_CHECK(shifts.size() == 1, ValueError, "roll: several shifts need as many dims, found none");
           return view(roll(reshape(x, {-1}, s), shifts[0], 0, s), x.sizes(), s);
         }
         DEFT_CHECK(shifts.size() == dims->size(), ValueError, "roll: found {} shifts for {} dims", shifts.size(),
                    dims->size());
         Tensor r = x;
         for (size_t i = 0; i < dims->size(); ++i) r = roll(r, shifts[i], (*dims)[i], s);
         return r;
       });
  bind(
      "tril(input, diagonal=0)", kEverywhere, [](const Tensor& x, int64_t d, Site s) { return tril(x, d, s); }, "tril");
  bind(
      "triu(input, diagonal=0)", kEverywhere, [](const Tensor& x, int64_t d, Site s) { return triu(x, d, s); }, "tril");
  bind(
      "diag(input, diagonal=0)", kEverywhere, [](const Tensor& x, int64_t d, Site s) { return diag(x, d, s); },
      "diagonal");
  bind("one_hot(tensor, num_classes=-1)", kFunctional,
       [](const Tensor& x, int64_t classes, Site s) { return one_hot(x, classes, s); });
}

constexpr Choice<ScatterReduce> kReduces[] = {{"sum", ScatterReduce::add},
                                              {"prod", ScatterReduce::mul},
                                              {"amin", ScatterReduce::amin},
                                              {"amax", ScatterReduce::amax},
                                              {"mean", ScatterReduce::mean}};

Tensor scatter_any(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src,
                   const std::optional<std::string>& reduce, const Site& s) {
  Tensor source = src.tensor ? *src.tensor : Tensor();
  if (!reduce) return src.tensor ? scatter(x, dim, index, source, s) : scatter(x, dim, index, src.scalar, s);
  static constexpr Choice<ScatterReduce> kOld[] = {{"add", ScatterReduce::add}, {"multiply", ScatterReduce::mul}};
  if (!source.defined()) source = full(index.sizes(), src.scalar, {x.dtype(), x.device()}, s);
  return scatter_reduce(x, dim, index, source, choose(*reduce, kOld), true, s);
}

Operand source_of(const std::optional<Operand>& src, const std::optional<Scalar>& value) {
  DEFT_CHECK(src.has_value() != value.has_value(), ValueError, "scatter: one of src and value is needed, and not both");
  return src ? *src : Operand{nullptr, *value};
}

void bind_gather_and_scatter() {
  bind("gather(input, dim, index)", kEverywhere,
       [](const Tensor& x, int64_t dim, const Tensor& index, Site s) { return gather(x, dim, index, s); });
  bind(
      "scatter(input, dim, index, src=None, value=None, *, reduce=None)", kEverywhere,
      [](const Tensor& x, int64_t dim, const Tensor& index, std::optional<Operand> src, std::optional<Scalar> value,
         std::optional<std::string> reduce,
         Site s) { return scatter_any(x, dim, index, source_of(src, value), reduce, s); },
      "scatter_reduce");
  bind(
      "scatter_(input, dim, index, src=None, value=None, *, reduce=None)", kMethod,
      [](Tensor& x, int64_t dim, const Tensor& index, std::optional<Operand> src, std::optional<Scalar> value,
         std::optional<std::string> reduce, Site s) {
        Operand source = source_of(src, value);
        if (source.tensor && !reduce)
          x.scatter_(dim, index, *source.tensor, s);
        else
          x.copy_(scatter_any(x, dim, index, source, reduce, s), s);
        return Same();
      },
      "scatter_reduce");
  bind("scatter_add(input, dim, index, src)", kEverywhere,
       [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Site s) {
         return scatter_add(x, dim, index, src, s);
       });
  bind("scatter_add_(input, dim, index, src)", kMethod,
       [](Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Site s) {
         x.scatter_add_(dim, index, src, s);
         return Same();
       });
  bind("scatter_reduce(input, dim, index, src, reduce, *, include_self=True)", kEverywhere,
       [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string reduce, bool include_self,
          Site s) { return scatter_reduce(x, dim, index, src, choose(reduce, kReduces), include_self, s); });
  bind("index_select(input, dim, index)", kEverywhere,
       [](const Tensor& x, int64_t dim, const Tensor& index, Site s) { return index_select(x, dim, index, s); });
  bind("index_add(input, dim, index, source, *, alpha=1)", kEverywhere,
       [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha, Site s) {
         return index_add(x, dim, index, alpha.to_double() == 1 ? source : mul(source, alpha, s), s);
       });
  bind("index_add_(input, dim, index, source, *, alpha=1)", kMethod,
       [](Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha, Site s) {
         x.index_add_(dim, index, alpha.to_double() == 1 ? source : mul(source, alpha, s), s);
         return Same();
       });
  bind("take(input, index)", kEverywhere,
       [](const Tensor& x, const Tensor& index, Site s) { return take(x, index, s); });
  bind("masked_fill(input, mask, value)", kEverywhere, [](const Tensor& x, const Tensor& mask, Operand value, Site s) {
    return value.tensor ? masked_fill(x, mask, *value.tensor, s) : masked_fill(x, mask, value.scalar, s);
  });
  bind("masked_fill_(input, mask, value)", kMethod, [](Tensor& x, const Tensor& mask, Operand value, Site s) {
    if (value.tensor)
      x.copy_(masked_fill(x, mask, *value.tensor, s), s);
    else
      x.masked_fill_(mask, value.scalar, s);
    return Same();
  });
  bind("masked_select(input, mask)", kEverywhere,
       [](const Tensor& x, const Tensor& mask, Site s) { return masked_select(x, mask, s); });
  bind("nonzero(input, *, as_tuple=False)", kEverywhere, [](const Tensor& x, bool as_tuple, Site s) -> OneOrTwo {
    DEFT_CHECK(!as_tuple, ValueError, "nonzero: as_tuple is made by where(x)");
    return {nonzero(x, s), {}};
  });
}

void bind_order() {
  bind("sort(input, dim=-1, descending=False, stable=False)", kEverywhere,
       [](const Tensor& x, int64_t dim, bool descending, bool, Site s) { return Pair{sort(x, dim, descending, s)}; });
  bind(
      "argsort(input, dim=-1, descending=False, stable=False)", kEverywhere,
      [](const Tensor& x, int64_t dim, bool descending, bool, Site s) { return argsort(x, dim, descending, s); },
      "sort");
  bind("topk(input, k, dim=-1, largest=True, sorted=True)", kEverywhere,
       [](const Tensor& x, int64_t k, int64_t dim, bool largest, bool, Site s) {
         return Pair{topk(x, k, dim, largest, s)};
       });
  bind(
      "_unique(input)", kPrivate, [](const Tensor& x, Site s) { return unique(x, s); }, "unique",
      "(values, inverse, counts)");
}

}  // namespace

void bind_shape_ops() {
  bind_views();
  bind_cuts();
  bind_gather_and_scatter();
  bind_order();
}

}  // namespace deft::python
