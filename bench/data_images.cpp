#include "bench/data_images.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/check.h"
#include "bench/cpu_timer.h"
#include "bench/interrupt.h"
#include "bench/peer.h"
#include "bench/statistics.h"
#include "data/image_folder.h"
#include "runtime/random.h"

#ifdef DEFT_HAS_JPEG
#include <cstdio>
//
#include <jpeglib.h>
#endif

namespace deft::bench {

namespace {

constexpr int kWidth = 500, kHeight = 375;

#ifdef DEFT_HAS_JPEG

// Like a photo to a decoder: slow gradients, edges, and fine structure that is stronger in some places than in others.
std::vector<uint8_t> draw_photo(uint64_t index) {
  std::vector<uint8_t> pixels;
  pixels.reserve(kWidth * kHeight * 3);
  auto chance = philox({index, 0}, 0);
  auto number = [&](int word) { return uniform_from_bits(chance[static_cast<size_t>(word)]); };
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      auto bits = philox({index, 1}, static_cast<uint64_t>(y * kWidth + x));
      float u = static_cast<float>(x) / kWidth, v = static_cast<float>(y) / kHeight;
      float du = u - number(0), dv = v - number(1), light = 90 + 80 * std::sin(3 * u + 7 * number(2)) * std::cos(4 * v);
      bool disc = du * du + dv * dv < 0.04f, bar = std::fmod(8 * (u + number(3) * v), 1.0f) < 0.3f;
      float detail = 6 + 30 * std::abs(std::sin(5 * u) * std::sin(6 * v + 3 * number(2)));
      float noise = detail * (uniform_from_bits(bits[0]) + uniform_from_bits(bits[1]) - 1);
      for (int c = 0; c < 3; ++c) {
        float tint =
            20 * std::sin(2.0f * static_cast<float>(c) + 4 * v) + (disc ? 60.0f - 30 * static_cast<float>(c) : 0);
        float value = light + tint + (bar ? 25 : 0) + noise + 4 * uniform_from_bits(bits[2] << (8 * c));
        pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)));
      }
    }
  }
  return pixels;
}

std::string to_jpeg(std::vector<uint8_t> pixels, int quality) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);  // colours at half the resolution, 4:2:0
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    uint8_t* row = pixels.data() + info.next_scanline * kWidth * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return out;
}

// libjpeg-turbo's decode of a whole file to RGB rows and nothing else.
class FullDecode {
 public:
  FullDecode() {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
    rows_.resize(kWidth * kHeight * 3);
  }
  ~FullDecode() { jpeg_destroy_decompress(&info_); }
  FullDecode(const FullDecode&) = delete;
  FullDecode& operator=(const FullDecode&) = delete;
  void operator()(const std::string& file) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      constexpr JDIMENSION kRows = 8;
      JSAMPROW rows[kRows];
      for (JDIMENSION i = 0; i < kRows; ++i)
        rows[i] = rows_.data() + ((info_.output_scanline + i) % kHeight) * kWidth * 3;
      jpeg_read_scanlines(&info_, rows, std::min(kRows, info_.output_height - info_.output_scanline));
    }
    jpeg_finish_decompress(&info_);
  }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::vector<uint8_t> rows_;
};

#else

std::vector<uint8_t> draw_photo(uint64_t) { return {}; }
std::string to_jpeg(const std::vector<uint8_t>&, int) {
  DEFT_FAIL(UnsupportedError,
            "bench data: this build has no libjpeg-turbo; install libjpeg62-turbo-dev and build again");
}
struct FullDecode {
  void operator()(const std::string&) {}
};

#endif

// The files in two classes below a folder that goes with the object.
class Photos {
 public:
  explicit Photos(int count) : root_(std::filesystem::temp_directory_path() / fmt::format("deft_photos_{}", getpid())) {
    for (int i = 0; i < count; ++i) {
      files_.push_back(to_jpeg(draw_photo(static_cast<uint64_t>(i)), 85 + i % 6));
      std::filesystem::path folder = root_ / (i % 2 ? "odd" : "even");
      std::filesystem::create_directories(folder);
      std::ofstream(folder / fmt::format("{:04}.jpg", i), std::ios::binary) << files_.back();
    }
  }
  ~Photos() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Photos(const Photos&) = delete;
  Photos& operator=(const Photos&) = delete;
  std::string root() const { return root_; }
  const std::vector<std::string>& files() const { return files_; }
  double mean_bytes() const {
    double sum = 0;
    for (const std::string& f : files_) sum += static_cast<double>(f.size());
    return sum / static_cast<double>(files_.size());
  }

 private:
  std::filesystem::path root_;
  std::vector<std::string> files_;
};

// Memory of one sample.
class OneSample : public data::SampleWriter {
 public:
  explicit OneSample(const data::Dataset& set) {
    for (const data::Field& f : set.fields()) {
      size_t bytes = size_of(f.dtype);
      for (int64_t s : f.shape) bytes *= static_cast<size_t>(s);
      fields_.emplace_back(bytes);
    }
  }
  void start(int64_t epoch, int64_t index) { rng_ = data::SampleRng(1, epoch, index); }
  data::SampleRng& rng() override { return rng_; }
  const data::StageTimes& stage_times() const { return times_; }

 protected:
  void* fixed_bytes(int field) override { return fields_[static_cast<size_t>(field)].data(); }
  void* varying_bytes(int field, const Shape&) override { return fixed_bytes(field); }
  data::StageTimes& times() override { return times_; }

 private:
  std::vector<std::vector<char>> fields_;
  data::SampleRng rng_;
  data::StageTimes times_;
};

struct Images {
  const char* name;
  data::ImageOptions options;
};
std::vector<Images> kinds() {
  data::ImageOptions train = data::training_images(), bytes = train, low = train, planes = train, jitter = train;
  bytes.dtype = DType::u8;
  low.dtype = DType::bf16;
  planes.channels_last = false;
  jitter.jitter = {0.4, 0.4, 0.4, 0.1};
  return {{"random crop 224, f32", train},
          {"random crop 224, u8", bytes},
          {"random crop 224, bf16", low},
          {"random crop 224, f32 NCHW", planes},
          {"random crop 224, jitter", jitter},
          {"centre crop 224 of 256, f32", data::evaluation_images()},
          {"random crop 64, f32", data::training_images(64)}};
}

std::array<double, data::kStages> filled(double value) {
  std::array<double, data::kStages> out;
  out.fill(value);
  return out;
}

// One thread, CPU time, best round; the same crops in every round. Full decodes in turns with it.
class CoreTimer {
 public:
  CoreTimer(const data::ImageFolder& set, const Photos& photos) : set_(set), photos_(photos), sample_(set) {}
  void round() {
    double start = thread_cpu_ns();
    for (const std::string& file : photos_.files()) decode_(file);
    double between = thread_cpu_ns();
    for (int64_t i = 0; i < set_.size(); ++i) {
      sample_.start(0, i);
      set_.get(i, sample_);
    }
    double end = thread_cpu_ns(), n = static_cast<double>(set_.size());
    full_ns_ = std::min(full_ns_, (between - start) / n);
    for (size_t i = 0; i < stages_.size(); ++i) {
      int64_t spent = sample_.stage_times().ns[i];
      stages_[i] = std::min(stages_[i], static_cast<double>(spent - spent_[i]) / n);
      spent_[i] = spent;
    }
    ns_ = std::min(ns_, (end - between) / n);
  }
  double ns() const { return ns_; }
  double full_ns() const { return full_ns_; }
  // Microseconds per image and stage, wall time of the best round.
  Json stages() const {
    Json out;
    for (data::Stage stage : {data::Stage::read, data::Stage::decode, data::Stage::transform})
      out[data::name_of(stage)] = rounded(stages_[static_cast<size_t>(stage)] / 1e3, 1);
    return out;
  }

 private:
  const data::ImageFolder& set_;
  const Photos& photos_;
  OneSample sample_;
  FullDecode decode_;
  double ns_ = INFINITY, full_ns_ = INFINITY;
  std::array<int64_t, data::kStages> spent_{};
  std::array<double, data::kStages> stages_ = filled(INFINITY);
};

// Wall time per image of several threads, each with its share of the epochs.
double workers_ns(const data::ImageFolder& set, int workers, int epochs) {
  auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&set, workers, epochs, w] {
      OneSample sample(set);
      for (int64_t i = w; i < epochs * set.size(); i += workers) {
        sample.start(i / set.size(), i % set.size());
        set.get(i % set.size(), sample);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(epochs * set.size());
}

void measure_core(const Photos& photos, const Images& kind, const DataImagesOptions& o, Report& report) {
  data::ImageFolder set(photos.root(), kind.options);
  CoreTimer timer(set, photos);
  for (int i = 0; i < o.rounds && !interrupted(); ++i) timer.round();
  report.add({{"case", kind.name},
              {"workers", 1},
              {"images_per_second", rounded(1e9 / timer.ns(), 1)},
              {"cpu_ms_per_image", rounded(timer.ns() / 1e6, 4)},
              {"full_decode_ms", rounded(timer.full_ns() / 1e6, 4)},
              {"full_decode_ratio", rounded(timer.full_ns() / timer.ns(), 3)},
              {"stage_us", timer.stages()},
              {"bytes_per_image", rounded(photos.mean_bytes(), 0)}});
}

// Plain threads on one side, the peer's loader with as many workers on the other, in turns.
void measure_workers(const Photos& photos, const DataImagesOptions& o, Report& report) {
  constexpr int kTurns = 3;
  Images kind = kinds().front();
  data::ImageFolder set(photos.root(), kind.options);
  std::unique_ptr<Peer> peer = o.peer.empty() ? nullptr : Peer::start(o.peer);
  std::vector<double> samples;
  double peer_ns = 0;
  for (int i = 0; i < kTurns && !interrupted(); ++i) {
    samples.push_back(workers_ns(set, o.workers, o.rounds));
    if (peer) peer_ns = peer->ns_per_op("images " + photos.root(), fmt::format("threads={}", o.workers), 1).value_or(0);
  }
  double ns = percentile(samples, 50);
  bool has_peer = peer_ns > 0;
  report.add({{"case", kind.name},
              {"workers", o.workers},
              {"images_per_second", rounded(1e9 / ns, 1)},
              {"peer", has_peer ? Json(peer->name()) : Json()},
              {"peer_images_per_second", has_peer ? Json(rounded(1e9 / peer_ns, 1)) : Json()},
              {"peer_ratio", has_peer ? Json(rounded(peer_ns / ns, 2)) : Json()}});
}

void add_bars(Report& report) {
  auto bar = [&](const char* name, const char* unit, double must, double aim, const Json& value) {
    report.bars.push_back({{"bar", name}, {"unit", unit}, {"must", must}, {"aim", aim}, {"value", value}});
  };
  bar("JPEG to random crop 224, one core", "x libjpeg-turbo's full decode", 0.8, 1.1,
      report.results.front()["full_decode_ratio"]);
  for (const Json& row : report.results)
    if (row.contains("peer_ratio") && !row["peer_ratio"].is_null())
      bar("the same, all workers", "x PyTorch DataLoader", 3, 6, row["peer_ratio"]);
}

}  // namespace

Report measure_data_images(const DataImagesOptions& o) {
  Report report;
  o.progress("drawing photos");
  Photos photos(o.files);
  for (const Images& kind : kinds()) {
    if (interrupted()) break;
    o.progress(kind.name);
    measure_core(photos, kind, o, report);
  }
  o.progress(fmt::format("{} workers", o.workers));
  if (!interrupted()) measure_workers(photos, o, report);
  add_bars(report);
  report.interrupted = interrupted();
  return report;
}

}  // namespace deft::bench
