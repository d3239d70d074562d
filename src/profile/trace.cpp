#include "profile/trace.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace deft::profile {

namespace {

// Length of the UTF-8 sequence at the start of `s`, 0 if there is none.
size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > s.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool too_long = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool no_character = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return too_long || no_character ? 0 : length;
}

// Lines of a JSON array, buffered. Errors of the file show in close().
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    DEFT_CHECK(file_, SaveError, "trace: '{}' cannot be written ({}); name a file in a folder that exists", path,
               std::strerror(errno));
    text("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  }
  ~TraceFile() {
    if (file_) std::fclose(file_);
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void line() {
    text(first_ ? "\n" : ",\n");
    first_ = false;
  }
  template <class... Args>
  void format(fmt::format_string<Args...> form, const Args&... args) {
    fmt::vformat_to(std::back_inserter(buffer_), form, fmt::make_format_args(args...));
    if (buffer_.size() > kBuffer) flush();
  }
  void text(std::string_view s) { buffer_ += s; }
  void string(std::string_view s) {
    buffer_ += '"';
    while (!s.empty()) s.remove_prefix(character(s));
    buffer_ += '"';
  }
  void close() {
    text("\n]}\n");
    flush();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    DEFT_CHECK(ok_ && closed, SaveError, "trace: writing '{}' failed ({}); is the disk full?", path_,
               std::strerror(errno));
  }

 private:
  static constexpr size_t kBuffer = 1 << 16;

  size_t character(std::string_view s) {
    const size_t length = utf8_length(s);
    if (length == 0) {
      buffer_ += "\\ufffd";
      return 1;
    }
    if (s[0] == '"' || s[0] == '\\')
      (buffer_ += '\\') += s[0];
    else if (static_cast<unsigned char>(s[0]) < 0x20)
      fmt::format_to(std::back_inserter(buffer_), "\\u{:04x}", static_cast<int>(s[0]));
    else
      buffer_ += s.substr(0, length);
    return length;
  }
  void flush() {
    ok_ = ok_ && std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size();
    buffer_.clear();
  }

  std::string path_;
  std::FILE* file_;
  std::string buffer_;
  bool first_ = true, ok_ = true;
};

void write_name(TraceFile& file, const char* what, size_t thread, std::string_view name) {
  file.line();
  file.format("{{\"ph\": \"M\", \"pid\": 1, \"tid\": {}, \"name\": \"{}\", \"args\": {{\"name\": ", thread, what);
  file.string(name);
  file.text("}}");
}

void write_event(TraceFile& file, const Trace& trace, size_t thread, const TraceEvent& e) {
  file.line();
  file.format(
      "{{\"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"ts\": {:.3f}, \"dur\": {:.3f}, \"cat\": \"{}\", \"name\": ", thread,
      trace.seconds(e.begin) * 1e6, (trace.seconds(e.end) - trace.seconds(e.begin)) * 1e6, name_of(e.bucket));
  file.string(e.name);
  if (e.site.line()) {
    file.text(", \"args\": {\"at\": ");
    file.string(to_string(e.site));
    file.text("}");
  }
  file.text("}");
}

void write_counter(TraceFile& file, const CounterTrack& track) {
  for (const auto& [seconds, value] : track.points) {
    if (!std::isfinite(value)) continue;  // JSON has no such numbers
    file.line();
    file.format("{{\"ph\": \"C\", \"pid\": 1, \"ts\": {:.3f}, \"name\": ", seconds * 1e6);
    file.string(track.name);
    file.format(", \"args\": {{\"value\": {}}}}}", value);
  }
}

}  // namespace

void write_trace(const Trace& trace, const std::string& path, std::span<const CounterTrack> counters) {
  TraceFile file(path);
  write_name(file, "process_name", 0, "deft");
  for (size_t t = 0; t < trace.threads.size(); ++t) {
    const TraceThread& thread = trace.threads[t];
    write_name(file, "thread_name", t + 1, thread.name);
    for (size_t i = 0; i < thread.events.size(); ++i) write_event(file, trace, t + 1, thread.events[i]);
  }
  for (const CounterTrack& track : counters) write_counter(file, track);
  file.close();
}

std::string flame_text(const Profile& profile) {
  std::string text;
  for (const FlameRow& row : profile.flame)
    fmt::format_to(std::back_inserter(text), "{} {:.0f}\n", row.stack, row.self_seconds * 1e6);
  return text;
}

}  // namespace deft::profile
