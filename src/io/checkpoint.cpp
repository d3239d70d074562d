#include "io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "core/grad_mode.h"
#include "io/atomic_file.h"
#include "io/checksum.h"
#include "io/safetensors.h"

namespace deft::io {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormat = "checkpoint";
constexpr int64_t kCheckpointVersion = 1;
constexpr const char* kVersionField = "version";
constexpr const char *kVersionKey = "deft.checkpoint", *kStepKey = "deft.step", *kConfigKey = "deft.config",
                     *kCheckKey = "deft.crc32";
constexpr std::string_view kValuePrefix = "value.";
constexpr const char *kPrefix = "step-", *kSuffix = ".safetensors";

// --- Values as text: a letter for the type, then the value. Doubles are hexadecimal, so that all bits come back.

std::string encode(bool v) { return v ? "b1" : "b0"; }
std::string encode(int64_t v) { return fmt::format("i{}", v); }
std::string encode(double v) { return fmt::format("d{:a}", v); }
std::string encode(const std::string& v) { return "s" + v; }
template <class T>
std::string encode(const std::vector<T>& list) {
  std::string text = "[";
  for (const T& v : list) {
    std::string one = encode(v);
    text += fmt::format("{}:{}", one.size(), one);
  }
  // The type of an empty list must be known too.
  return text + encode(T{})[0];
}

class Decoder {
 public:
  Decoder(const std::string& file, const std::string& name) : file_(file), name_(name) {}
  StateValue decode(std::string_view text, bool in_list = false) const {
    check(!text.empty());
    std::string_view rest = text.substr(1);
    switch (text[0]) {
      case 'b':
        check(rest == "0" || rest == "1");
        return rest == "1";
      case 'i':
        return number<int64_t>(rest);
      case 'd':
        return number<double>(rest);
      case 's':
        return std::string(rest);
      case '[':
        check(!rest.empty() && !in_list);  // a file must not decide how deep this goes
        return list(rest.substr(0, rest.size() - 1), rest.back());
      default:
        fail();
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw LoadError(kFormat, file_, fmt::format("value '{}'", name_), 8, "is not of a known form");
  }
  void check(bool good) const {
    if (!good) fail();
  }
  template <class T>
  T number(std::string_view text) const {
    T value{};
    std::from_chars_result end{};
    if constexpr (std::is_same_v<T, double>) {
      if (text == "nan" || text == "-nan") return std::numeric_limits<double>::quiet_NaN();
      bool negative = text.starts_with('-');
      if (negative) text.remove_prefix(1);
      if (text == "inf")
        return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
      check(text.starts_with("0x"));
      text.remove_prefix(2);
      end = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::hex);
      if (negative) value = -value;
    } else {
      end = std::from_chars(text.data(), text.data() + text.size(), value);
    }
    check(end.ec == std::errc() && end.ptr == text.data() + text.size());
    return value;
  }
  template <class T>
  StateValue list_of(std::string_view text) const {
    std::vector<T> out;
    while (!text.empty()) {
      size_t colon = text.find(':');
      check(colon != text.npos);
      auto size = static_cast<size_t>(number<int64_t>(text.substr(0, colon)));
      text.remove_prefix(colon + 1);
      check(size <= text.size());
      StateValue one = decode(text.substr(0, size), true);
      check(std::holds_alternative<T>(one));
      out.push_back(std::get<T>(one));
      text.remove_prefix(size);
    }
    return out;
  }
  StateValue list(std::string_view text, char type) const {
    if (type == 'i') return list_of<int64_t>(text);
    if (type == 'd') return list_of<double>(text);
    if (type == 's') return list_of<std::string>(text);
    fail();
  }
  const std::string &file_, &name_;
};

const std::string& entry(const Metadata& metadata, const char* key, const std::string& path) {
  auto found = metadata.find(key);
  if (found == metadata.end())
    throw LoadError(kFormat, path, fmt::format("metadata '{}'", key), 8, "is missing: this is no checkpoint of Deft");
  return found->second;
}

int64_t number_entry(const Metadata& metadata, const char* key, const std::string& path) {
  const std::string& text = entry(metadata, key, path);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw LoadError(kFormat, path, fmt::format("metadata '{}'", key), 8, fmt::format("'{}' is no number", text));
  return value;
}

}  // namespace

void save_checkpoint(const std::string& path, const State& state, const CheckpointInfo& info) {
  Metadata metadata{{kVersionKey, std::to_string(kCheckpointVersion)},
                    {kStepKey, std::to_string(info.step)},
                    {kConfigKey, info.config}};
  for (auto& [name, value] : state.values)
    metadata[std::string(kValuePrefix) + name] = std::visit([](auto& v) { return encode(v); }, value);
  metadata[kCheckKey] = checksum(metadata, state.tensors, kCheckKey);
  save_safetensors(path, state.tensors, metadata);
}

namespace {

// By one rule for all versions: a damaged version number is damage, not another version.
void check_sum(const SafetensorsFile& file, const std::string& path) {
  const std::string found = checksum(file.metadata, file.tensors, kCheckKey),
                    expected = entry(file.metadata, kCheckKey, path);
  if (found != expected)
    throw LoadError(kFormat, path, "checksum", 8,
                    fmt::format("is {} where the file says {}: the file was damaged after it was written; take an "
                                "earlier checkpoint or a copy",
                                found, expected));
}

}  // namespace

void check_if_checkpoint(const SafetensorsFile& file, const std::string& path) {
  // Any of its keys will do: damage may have changed one of them. Plans have a checksum of their own.
  for (const char* key : {kVersionKey, kStepKey, kConfigKey})
    if (file.metadata.contains(key)) return check_sum(file, path);
}

Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options) {
  SafetensorsFile file = load_safetensors(path, options);
  int64_t version = number_entry(file.metadata, kVersionKey, path);
  check_sum(file, path);
  if (version != kCheckpointVersion)
    throw LoadError(kFormat, path, kVersionField, 8,
                    fmt::format("is {}, this Deft reads version {}; use the Deft that wrote it, or a newer one",
                                version, kCheckpointVersion));
  Checkpoint out;
  out.info = {number_entry(file.metadata, kStepKey, path), entry(file.metadata, kConfigKey, path)};
  for (auto& [key, value] : file.metadata) {
    if (!key.starts_with(kValuePrefix)) continue;
    std::string name = key.substr(kValuePrefix.size());
    out.state.values[name] = Decoder(path, name).decode(value);
  }
  out.state.tensors = std::move(file.tensors);
  return out;
}

namespace {

using Settings = std::vector<std::pair<std::string_view, std::string_view>>;

// "a=1 b=two" as pairs; nothing where a word is no such pair.
std::optional<Settings> settings_of(std::string_view config) {
  Settings out;
  while (!config.empty()) {
    const std::string_view word = config.substr(0, config.find(' '));
    config.remove_prefix(std::min(config.size(), word.size() + 1));
    const size_t is = word.find('=');
    if (is == 0 || is == word.npos) return {};
    out.emplace_back(word.substr(0, is), word.substr(is + 1));
  }
  return out;
}

const std::string_view* find_value(const Settings& settings, std::string_view name) {
  for (const auto& [key, value] : settings)
    if (key == name) return &value;
  return nullptr;
}

std::string shown(const std::string_view* value) {
  return !value ? "not set" : value->empty() ? "empty" : std::string(*value);
}

}  // namespace

std::string config_value(const std::string& config, const std::string& name) {
  const auto settings = settings_of(config);
  const std::string_view* value = settings ? find_value(*settings, name) : nullptr;
  return value ? std::string(*value) : std::string();
}

std::string config_difference(const std::string& there, const std::string& here) {
  const auto a = settings_of(there), b = settings_of(here);
  if (!a || !b) return fmt::format("it has '{}', this run '{}'", there, here);
  std::vector<std::string> parts;
  for (const auto& [key, value] : *a) {
    const std::string_view* other = find_value(*b, key);
    if (!other || *other != value)
      parts.push_back(fmt::format("{} is {} there, {} here", key, shown(&value), shown(other)));
  }
  for (const auto& [key, value] : *b)
    if (!find_value(*a, key)) parts.push_back(fmt::format("{} is not set there, {} here", key, shown(&value)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

namespace {

// Steps and paths of the files in a folder, newest first.
std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& folder, std::error_code& error) {
  std::vector<std::pair<int64_t, std::string>> out;
  for (fs::directory_iterator at(folder, error), last; !error && at != last; at.increment(error)) {
    std::string name = at->path().filename();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    int64_t step = 0;
    const char* begin = name.data() + std::char_traits<char>::length(kPrefix);
    const char* end = name.data() + name.size() - std::char_traits<char>::length(kSuffix);
    if (auto [stop, wrong] = std::from_chars(begin, end, step); wrong == std::errc() && stop == end)
      out.emplace_back(step, at->path());
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

std::string save_and_prune(const std::string& folder, size_t keep, const State& state, const CheckpointInfo& info) {
  remove_abandoned(folder, kPrefix);  // first: they may be what fills the disk
  std::string path = fmt::format("{}/{}{:010}{}", folder, kPrefix, info.step, kSuffix);
  save_checkpoint(path, state, info);
  std::error_code ignored;  // a file that cannot be removed does no harm
  auto all = list_checkpoints(folder, ignored);
  for (size_t i = keep; i < all.size(); ++i)
    if (all[i].second != path) fs::remove(all[i].second, ignored);
  return path;
}

State copy_of(const State& state) {
  NoGradGuard no_grad;
  State copy{{}, state.values};
  for (const NamedTensor& t : state.tensors)
    copy.tensors.push_back({t.name, t.tensor.device().is_cpu() ? t.tensor.clone() : t.tensor.cpu()});
  return copy;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, int keep) : folder_(std::move(folder)), keep_(keep) {
  DEFT_CHECK(keep >= 1, ValueError, "CheckpointFolder: keep must be at least 1, found {}", keep);
  std::error_code error;
  fs::create_directories(folder_, error);
  DEFT_CHECK(fs::is_directory(folder_), SaveError, "checkpoints: the folder {} cannot be made: {}", folder_,
             error.message());
}
CheckpointFolder::~CheckpointFolder() = default;  // the future's destructor waits

std::string CheckpointFolder::save(const State& state, const CheckpointInfo& info) {
  wait();
  return save_and_prune(folder_, static_cast<size_t>(keep_), state, info);
}

void CheckpointFolder::save_async(const State& state, const CheckpointInfo& info) {
  wait();
  auto write = [folder = folder_, keep = static_cast<size_t>(keep_), copy = copy_of(state), info]() mutable {
    State own = std::move(copy);  // goes when it is written, not with the future
    return save_and_prune(folder, keep, own, info);
  };
  try {
    pending_ = std::async(std::launch::async, std::move(write));
  } catch (const std::system_error&) {  // no thread is to be had: written now
    pending_ = std::async(std::launch::deferred, [path = save(state, info)] { return path; });
  }
}

bool CheckpointFolder::saving() const {
  return pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

std::string CheckpointFolder::wait() { return pending_.valid() ? pending_.get() : std::string(); }

std::vector<std::string> CheckpointFolder::files() const {
  std::error_code unreadable;
  std::vector<std::string> out;
  for (auto& [step, path] : list_checkpoints(folder_, unreadable)) out.push_back(path);
  if (unreadable)
    throw LoadError(kFormat, folder_, "folder", 0, fmt::format("cannot be listed ({})", unreadable.message()));
  return out;
}

void CheckpointFolder::clear() {
  wait();
  for (const std::string& path : files()) {
    std::error_code error;
    fs::remove(path, error);
    DEFT_CHECK(!error, SaveError, "checkpoints: {} cannot be removed: {}", path, error.message());
  }
}

std::optional<CheckpointFolder::Found> CheckpointFolder::newest(const std::string& config) const {
  std::error_code unreadable;
  auto files = list_checkpoints(folder_, unreadable);
  if (unreadable)
    throw LoadError(kFormat, folder_, "folder", 0, fmt::format("cannot be listed ({})", unreadable.message()));
  std::vector<std::string> skipped;
  std::optional<LoadError> first;
  for (auto& [step, path] : files) {
    try {
      Found found{load_checkpoint(path), path, skipped};
      DEFT_CHECK(config.empty() || found.checkpoint.info.config == config, ValueError, "{} belongs to another run: {}",
                 path, config_difference(found.checkpoint.info.config, config));
      return found;
    } catch (const LoadError& error) {
      // Removed by a saver since it was listed: there are newer ones now.
      if (fs::symlink_status(path).type() == fs::file_type::not_found) return newest(config);
      if (error.field == kVersionField) throw;
      skipped.push_back(error.what());
      if (!first) first = error;
    }
  }
  if (first) throw *first;
  return {};
}

}  // namespace deft::io
