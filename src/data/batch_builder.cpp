#include "data/batch_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "ops/creation.h"
#include "runtime/memory.h"

namespace deft::data {

namespace {

constexpr size_t kArenaAlign = 64, kArenaLeast = 64 << 10;

std::array<char, 8> pad_bytes(const Field& field) {
  std::array<char, 8> out{};
  dispatch_all(field.dtype, [&]<class T>() {
    T value;
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
      value = T(static_cast<float>(field.pad));
    } else {
      if constexpr (std::is_integral_v<T>) {
        using Limits = std::numeric_limits<T>;
        // The upper limit of i64 is not a double: the next one above it is.
        bool fits = field.pad >= static_cast<double>(Limits::min()) &&
                    field.pad < static_cast<double>(Limits::max()) + 1 && field.pad == std::trunc(field.pad);
        DEFT_CHECK(fits, ValueError, "data loader: field \"{}\" cannot be padded with {}, which is no {}", field.name,
                   field.pad, name_of(field.dtype));
      }
      value = static_cast<T>(field.pad);
    }
    std::memcpy(out.data(), &value, sizeof(T));
  });
  return out;
}

size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<size_t>(checked_numel(shape, dtype)) * size_of(dtype);
}

Shape with_rows(int64_t rows, const Shape& shape) {
  Shape out = shape;
  out.insert(0, rows);
  return out;
}

// Copies a block into the corner of a larger one and pads the rest.
class Padder {
 public:
  Padder(const Shape& to, DType dtype, const std::array<char, 8>& pad) : to_(to), element_(size_of(dtype)), pad_(pad) {
    same_ = std::all_of(pad.begin(), pad.begin() + size_of(dtype), [&](char c) { return c == pad[0]; });
  }
  void place(char* to, const char* from, const Shape& shape) const { copy(to, from, shape, 0); }

 private:
  size_t inner_bytes(const Shape& shape, int dim) const {
    size_t bytes = element_;
    for (int d = dim + 1; d < shape.size(); ++d) bytes *= static_cast<size_t>(shape[d]);
    return bytes;
  }
  void copy(char* to, const char* from, const Shape& shape, int dim) const {
    size_t step = inner_bytes(to_, dim), from_step = inner_bytes(shape, dim);
    auto n = static_cast<size_t>(shape[dim]), all = static_cast<size_t>(to_[dim]);
    if (same_from(shape, dim + 1)) {
      if (n * step > 0) std::memcpy(to, from, n * step);
    } else {
      for (size_t i = 0; i < n; ++i) copy(to + i * step, from + i * from_step, shape, dim + 1);
    }
    fill(to + n * step, (all - n) * step);
  }
  bool same_from(const Shape& shape, int dim) const {
    for (int d = dim; d < shape.size(); ++d)
      if (shape[d] != to_[d]) return false;
    return true;
  }
  void fill(char* to, size_t bytes) const {
    if (same_) {
      if (bytes > 0) std::memset(to, pad_[0], bytes);
    } else {
      for (size_t i = 0; i < bytes; i += element_) std::memcpy(to + i, pad_.data(), element_);
    }
  }
  const Shape& to_;
  size_t element_;
  std::array<char, 8> pad_;
  bool same_;
};

}  // namespace

BatchLayout::BatchLayout(const std::vector<Field>& fields, size_t most, bool pinned_, const Site& site_)
    : max_sample_bytes(most), pinned(pinned_), site(site_) {
  DEFT_CHECK(!fields.empty() && fields.size() <= kMaxFields, ValueError,
             "data loader: a sample has {} fields, expected 1 to {}", fields.size(), kMaxFields);
  auto list = std::make_shared<std::vector<std::string>>();
  for (const Field& field : fields) {
    DEFT_CHECK(std::find(list->begin(), list->end(), field.name) == list->end(), ValueError,
               "data loader: two fields have the name \"{}\"; give each its own", field.name);
    DEFT_CHECK(field.shape.size() < kMaxDims, ValueError, "data loader: field \"{}\" has {} dimensions, {} is the most",
               field.name, field.shape.size(), kMaxDims - 1);
    list->push_back(field.name);
    Place place{field.name, field.dtype, field.shape};
    place.pad = pad_bytes(field);
    for (int d = field.shape.size() - 1; d >= 0; --d) {
      DEFT_CHECK(field.shape[d] >= -1, ValueError, "data loader: field \"{}\" has the shape {}; sizes are -1 or more",
                 field.name, to_string(field.shape));
      if (field.shape[d] == -1) {
        place.varying = varying;
        place.first_varying = d;
      }
    }
    if (place.varying >= 0)
      ++varying;
    else
      fixed_bytes += place.row_bytes = bytes_of(field.shape, field.dtype);
    places.push_back(place);
  }
  DEFT_CHECK(fixed_bytes <= most, ValueError,
             "data loader: a sample has {} bytes, max_sample_bytes is {}; raise it if that is meant", fixed_bytes,
             most);
  names = list;
}

char* Arena::allocate(size_t bytes) {
  bytes = std::max<size_t>((bytes + kArenaAlign - 1) / kArenaAlign * kArenaAlign, kArenaAlign);
  std::lock_guard guard(lock_);
  if (blocks_.empty() || blocks_.back().bytes - used_ < bytes) {
    size_t size = std::max({bytes, total_, kArenaLeast});  // doubles
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({static_cast<char*>(allocate_buffer(size)), size});
    total_ += size;
    used_ = 0;
  }
  char* p = blocks_.back().data + used_;
  used_ += bytes;
  return p;
}

void Arena::clear() {
  used_ = 0;
  if (blocks_.size() <= 1) return;
  size_t size = total_;
  release();
  blocks_.push_back({static_cast<char*>(allocate_buffer(size)), size});
  total_ = size;
}

void Arena::release() noexcept {
  for (Block& b : blocks_) free_buffer(b.data, b.bytes);
  blocks_.clear();
  used_ = total_ = 0;
}

Tensor BatchBuilder::make(const Shape& sizes, DType dtype) const {
  Meta meta = Meta::dense(sizes, dtype, kCPU);
  Tensor made(layout_->pinned ? make_pinned(meta) : make_tensor(meta));
  made.set_memory_category(MemoryCategory::data);
  made.impl()->storage->name_maker("data loader", layout_->site);
  return made;
}

void BatchBuilder::begin(int64_t rows) {
  rows_ = rows;
  indices_ = empty({rows_}, DType::i64);  // never pinned: no device wants them
  indices_.set_memory_category(MemoryCategory::data);
  indices_.impl()->storage->name_maker("data loader", layout_->site);
  samples_ = indices_.data<int64_t>();
  for (size_t f = 0; f < layout_->places.size(); ++f) {
    const BatchLayout::Place& place = layout_->places[f];
    if (place.varying >= 0) continue;
    fixed_[f] = make(with_rows(rows_, place.shape), place.dtype);
    data_[f] = static_cast<char*>(fixed_[f].data_ptr());
  }
  pieces_.assign(static_cast<size_t>(rows) * static_cast<size_t>(layout_->varying), Piece{});
  dropped_.assign(static_cast<size_t>(rows), 0);
  arena_.clear();
}

void BatchBuilder::clear() {
  indices_ = Tensor();
  for (Tensor& t : fixed_) t = Tensor();
}

// The rows that were not dropped, in memory of their own.
Tensor BatchBuilder::keep(const Tensor& rows, size_t row_bytes) const {
  Shape sizes = rows.sizes();
  sizes[0] = rows_ - std::count(dropped_.begin(), dropped_.begin() + rows_, 1);
  Tensor out = make(sizes, rows.dtype());
  const char* from = static_cast<const char*>(rows.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  for (int64_t r = 0; r < rows_; ++r) {
    if (dropped_[static_cast<size_t>(r)]) continue;
    if (row_bytes > 0) std::memcpy(to, from + static_cast<size_t>(r) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

Tensor BatchBuilder::pad(const BatchLayout::Place& place, int64_t kept) const {
  Shape largest = place.shape;
  for (int d = 0; d < largest.size(); ++d) {
    if (place.shape[d] != -1) continue;
    largest[d] = 0;
    for (int64_t r = 0; r < rows_; ++r)
      if (!dropped_[static_cast<size_t>(r)]) largest[d] = std::max(largest[d], piece(r, place.varying).shape[d]);
  }
  Tensor out = make(with_rows(kept, largest), place.dtype);
  Padder padder(largest, place.dtype, place.pad);
  char* to = static_cast<char*>(out.data_ptr());
  size_t step = bytes_of(largest, place.dtype);
  for (int64_t r = 0; r < rows_; ++r) {
    if (dropped_[static_cast<size_t>(r)]) continue;
    padder.place(to, piece(r, place.varying).data, piece(r, place.varying).shape);
    to += step;
  }
  return out;
}

Tensor BatchBuilder::lengths_of(const BatchLayout::Place& place, int64_t kept) const {
  Tensor out = make({kept}, DType::i64);
  int64_t* to = out.data<int64_t>();
  for (int64_t r = 0; r < rows_; ++r)
    if (!dropped_[static_cast<size_t>(r)]) *to++ = piece(r, place.varying).shape[place.first_varying];
  return out;
}

void BatchBuilder::finish(Batch& out) {
  int64_t kept = rows_ - std::count(dropped_.begin(), dropped_.begin() + rows_, 1);
  bool gaps = kept != indices_.numel();
  out.names_ = layout_->names;
  out.count_ = static_cast<int>(layout_->places.size());
  out.indices = gaps ? keep(indices_, sizeof(int64_t)) : std::move(indices_);
  for (size_t f = 0; f < layout_->places.size(); ++f) {
    const BatchLayout::Place& place = layout_->places[f];
    if (place.varying >= 0) {
      out.fields_[f] = pad(place, kept);
      out.lengths_[f] = lengths_of(place, kept);
    } else {
      out.fields_[f] = gaps ? keep(fixed_[f], place.row_bytes) : std::move(fixed_[f]);
    }
  }
  clear();
}

void RowWriter::begin(BatchBuilder& builder, int64_t row, const SampleRng& rng) {
  builder_ = &builder;
  row_ = row;
  written_ = 0;
  bytes_ = builder.layout_->fixed_bytes;
  rng_ = rng;
}

void RowWriter::end() {
  const auto& places = builder_->layout_->places;
  if (written_ == (1u << places.size()) - 1) [[likely]]
    return;
  auto missing = static_cast<size_t>(__builtin_ctz(~written_));
  DEFT_FAIL(ValueError, "field \"{}\" was not written; a sample has to write every field", places[missing].name);
}

const BatchLayout::Place& RowWriter::place(int field) {
  const auto& places = builder_->layout_->places;
  DEFT_CHECK(field >= 0 && static_cast<size_t>(field) < places.size(), IndexError, "field {} of {} was asked for",
             field, places.size());
  written_ |= 1u << field;
  return places[static_cast<size_t>(field)];
}

void* RowWriter::fixed_bytes(int field) {
  const BatchLayout::Place& p = place(field);
  DEFT_CHECK(p.varying < 0, ShapeError, "field \"{}\" of shape {} varies; say its shape with varying()", p.name,
             to_string(p.shape));
  return builder_->data_[static_cast<size_t>(field)] + static_cast<size_t>(row_) * p.row_bytes;
}

void* RowWriter::varying_bytes(int field, const Shape& shape) {
  const BatchLayout::Place& p = place(field);
  bool agrees = shape.size() == p.shape.size();
  for (int d = 0; agrees && d < shape.size(); ++d) agrees = p.shape[d] == -1 ? shape[d] >= 0 : shape[d] == p.shape[d];
  DEFT_CHECK(agrees, ShapeError, "field \"{}\": found the shape {}, expected {}", p.name, to_string(shape),
             to_string(p.shape));
  if (p.varying < 0) return fixed_bytes(field);
  size_t bytes = bytes_of(shape, p.dtype), most = builder_->layout_->max_sample_bytes;
  DEFT_CHECK(bytes <= most && bytes_ + bytes <= most, ValueError,
             "field \"{}\" of shape {} makes a sample of {} bytes, max_sample_bytes is {}; raise it if that is meant",
             p.name, to_string(shape), bytes_ + bytes, most);
  bytes_ += bytes;
  char* data = builder_->arena_.allocate(bytes);
  auto at =
      static_cast<size_t>(row_) * static_cast<size_t>(builder_->layout_->varying) + static_cast<size_t>(p.varying);
  builder_->pieces_[at] = {shape, data};
  return data;
}

}  // namespace deft::data
