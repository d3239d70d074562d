#include "data/tar_stream.h"

#include <algorithm>
#include <numeric>

#include "data/order.h"
#include "data/tar_source.h"
#include "io/source.h"

namespace deft::data {

namespace {

struct Name {
  std::string_view record, part;  // no part: it belongs to no record
};

Name split(std::string_view name) {
  size_t last = name.rfind('/') + 1, dot = name.find('.', last);
  if (dot == name.npos || dot == last || dot + 1 == name.size()) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

// The second highest bit keeps the draws apart from those of epoch_order() and of SampleRng.
TarStream::TarStream(std::shared_ptr<const TarShards> shards, uint64_t seed, int64_t epoch)
    : shards_(std::move(shards)), draws_{seed, static_cast<uint64_t>(epoch) | uint64_t{1} << 62} {
  auto count = static_cast<int64_t>(shards_->paths.size());
  if (shards_->options.shuffle_shards) {
    order_ = epoch_order(count, seed, epoch);
  } else {
    order_.resize(shards_->paths.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  slots_.resize(static_cast<size_t>(std::max<int64_t>(shards_->options.shuffle_buffer, 1)));
}

TarStream::~TarStream() = default;

bool TarStream::next(Record& record) {
  Slot* slot = draw(true);
  if (!slot) return false;
  if (slot->shard) load(*slot);
  std::swap(record, slot->record);
  return true;
}

int64_t TarStream::skip(int64_t count) {
  int64_t done = 0;
  while (done < count && draw(false)) ++done;
  return done;
}

// The slot behind those that are filled: its record is no longer part of the buffer.
TarStream::Slot* TarStream::draw(bool read) {
  while (filled_ < slots_.size() && read_record(slots_[filled_], read)) ++filled_;
  if (filled_ == 0) return nullptr;
  auto words = philox(draws_, drawn_++);
  uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
  // The high half of the 128-bit product: below filled_, and even to 2^-64 filled_.
  auto chosen = static_cast<size_t>(static_cast<unsigned __int128>(bits) * filled_ >> 64);
  --filled_;
  if (chosen != filled_) std::swap(slots_[chosen], slots_[filled_]);
  return &slots_[filled_];
}

// On to the next member that belongs to a record, in this shard; without one there is no reader afterwards.
void TarStream::find_member() {
  try {
    while (reader_->next(member_))
      if (!split(member_.name).part.empty()) return;
  } catch (...) {
    reader_.reset();
    throw;
  }
  reader_.reset();
}

bool TarStream::read_record(Slot& slot, bool read) {
  while (!reader_) {
    if (shard_ == order_.size()) return false;
    const std::string& path = shards_->paths[static_cast<size_t>(order_[shard_++])];
    reader_ = std::make_unique<TarReader>(path, shards_->options.limits);
    find_member();
  }
  record_name_ = split(member_.name).record;
  const std::string& path = shards_->paths[static_cast<size_t>(order_[shard_ - 1])];
  slot.record.name = fmt::format("{}/{}", path, record_name_);
  read |= reader_->gzipped();
  slot.shard = read ? nullptr : &path;
  slot.pieces.clear();
  std::string twice;
  uint64_t twice_at = 0;
  size_t count = 0;
  auto& parts = slot.record.parts;
  for (; reader_ && split(member_.name).record == record_name_; find_member()) {
    part_name_ = split(member_.name).part;
    for (char& c : part_name_) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if (!wants(part_name_)) continue;
    auto end = parts.begin() + static_cast<std::ptrdiff_t>(count);
    if (std::any_of(parts.begin(), end, [&](const Record::Part& p) { return p.name == part_name_; })) {
      twice = part_name_, twice_at = member_.data;
      continue;
    }
    add_part(slot, count++, part_name_, read);
  }
  parts.resize(count);
  if (!twice.empty())
    io::Source{"tar", path}.fail({"part", slot.record.name}, twice_at, "the part '{}' is there twice", twice);
  return true;
}

void TarStream::add_part(Slot& slot, size_t count, std::string_view part, bool read) {
  auto& parts = slot.record.parts;
  if (count == parts.size()) parts.emplace_back();
  parts[count].name = part;
  slot.pieces.push_back({member_.data, member_.size});
  if (!read) return;
  try {
    reader_->read(parts[count].bytes);
  } catch (...) {
    reader_.reset();
    throw;
  }
}

bool TarStream::wants(std::string_view part) const {
  return shards_->parts.empty() ||
         std::find(shards_->parts.begin(), shards_->parts.end(), part) != shards_->parts.end();
}

void TarStream::load(Slot& slot) const {
  std::unique_ptr<TarSource> file = open_tar(*slot.shard);
  for (size_t i = 0; i < slot.pieces.size(); ++i) {
    auto [offset, bytes] = slot.pieces[i];
    std::vector<char>& to = slot.record.parts[i].bytes;
    to.resize(file->may_reach(offset + bytes) ? bytes : 0);
    if (to.size() != bytes || file->read(offset, to.data(), bytes) != bytes)
      io::Source{"tar", *slot.shard}.fail("data", offset, "the archive ends inside a member of {} bytes", bytes);
  }
}

}  // namespace deft::data
