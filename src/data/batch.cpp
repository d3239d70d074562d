#include "data/batch.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace deft::data {

namespace {

// Memory reports tell what a loader made from what the program did.
void count_as_data(const Tensor& t) {
  if (t.defined() && t.memory_category() == MemoryCategory::other) t.set_memory_category(MemoryCategory::data);
}

}  // namespace

int Batch::find(std::string_view name) const {
  for (int i = 0; i < count_; ++i)
    if ((*names_)[static_cast<size_t>(i)] == name) return i;
  return -1;
}

int Batch::position(std::string_view name) const {
  int field = find(name);
  DEFT_CHECK(field >= 0, ValueError, "batch: there is no field \"{}\"; it has {}", name,
             fmt::join(names_ ? *names_ : Names{}, ", "));
  return field;
}

void Batch::check(int field) const {
  DEFT_CHECK(field >= 0 && field < count_, IndexError, "batch: field {} of {}", field, count_);
}

const Tensor& Batch::operator[](int field) const {
  check(field);
  return fields_[static_cast<size_t>(field)];
}
const Tensor& Batch::operator[](std::string_view name) const { return fields_[static_cast<size_t>(position(name))]; }
const std::string& Batch::name(int field) const {
  check(field);
  return (*names_)[static_cast<size_t>(field)];
}
const Tensor& Batch::lengths(int field) const {
  check(field);
  return lengths_[static_cast<size_t>(field)];
}
const Tensor& Batch::lengths(std::string_view name) const { return lengths_[static_cast<size_t>(position(name))]; }

void Batch::set(std::string_view name, Tensor values, Tensor lengths) {
  int field = find(name);
  if (field < 0) {
    DEFT_CHECK(count_ < kMaxFields, ValueError, "batch: \"{}\" is one field too many, {} is the most", name,
               kMaxFields);
    auto names = std::make_shared<Names>(names_ ? *names_ : Names{});
    names->emplace_back(name);
    names_ = std::move(names);
    field = count_++;
  }
  count_as_data(values);
  count_as_data(lengths);
  fields_[static_cast<size_t>(field)] = std::move(values);
  lengths_[static_cast<size_t>(field)] = std::move(lengths);
}

void Batch::remove(std::string_view name) {
  auto field = static_cast<size_t>(position(name));
  auto names = std::make_shared<Names>(*names_);
  names->erase(names->begin() + static_cast<std::ptrdiff_t>(field));
  names_ = std::move(names);
  --count_;
  for (auto* list : {&fields_, &lengths_}) {
    std::move(list->begin() + field + 1, list->end(), list->begin() + field);
    list->back() = Tensor();
  }
}

// Samples have smaller numbers: these draws are their own.
SampleRng Batch::rng() const { return SampleRng(seed, epoch, index + (int64_t{1} << 42)); }

size_t Batch::bytes() const {
  size_t sum = 0;
  for (const auto* list : {&fields_, &lengths_})
    for (const Tensor& t : *list)
      if (t.defined()) sum += static_cast<size_t>(t.numel()) * t.element_size();
  return sum;
}

void Batch::to(Device device) {
  for (auto* list : {&fields_, &lengths_})
    for (Tensor& t : *list) {
      if (t.defined()) t = t.to(device, true);
      count_as_data(t);
    }
}

}  // namespace deft::data
