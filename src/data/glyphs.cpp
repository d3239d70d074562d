#include "data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "base/check.h"
#include "ops/creation.h"
#include "runtime/parallel.h"
#include "runtime/random.h"

namespace deft::data {

namespace {

struct Point {
  float x, y;
};

// Strokes in a box of 8 x 8, y down: pairs of digits are points, a space lifts the pen.
struct Glyph {
  char name;
  const char* strokes;
};
constexpr Glyph kGlyphs[] = {
    {'A', "084088 2565"},    {'C', "8160200206286887"}, {'E', "80000888 0464"},
    {'F', "800008 0464"},    {'H', "0008 8088 0484"},   {'J', "2080 6066481806"},
    {'K', "0008 8004 2288"}, {'L', "000888"},           {'M', "0800448088"},
    {'N', "08008880"},       {'P', "080060826404"},     {'R', "080060826404 3488"},
    {'T', "0080 4048"},      {'W', "0028446880"},       {'X', "0088 8008"},
    {'Y', "004480 4448"},    {'2', "02106082840888"},   {'3', "011060826434 6486681807"},
    {'4', "68600585"},       {'7', "008038"},
};
constexpr int64_t kClasses = std::size(kGlyphs);

// Uniform numbers of one image.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t index) : state_{seed, index} {}
  float operator()(float low, float high) { return low + (high - low) * next(); }
  float normal() {  // close enough for noise: the sum of four uniform numbers, scaled to variance 1
    return (next() + next() + next() + next() - 2) * 1.7320508f;
  }
  uint32_t bits() {
    if (at_ == 4) {
      words_ = philox(state_, block_++);
      at_ = 0;
    }
    return words_[at_++];
  }

 private:
  float next() { return uniform_from_bits(bits()); }
  PhiloxState state_;
  std::array<uint32_t, 4> words_{};
  uint64_t block_ = 0;
  unsigned at_ = 4;
};

// How one image differs from the plain drawing.
struct Distortion {
  float xx, xy, yx, yy, dx, dy;                       // turn, slant, scale, shift
  float wave_x, wave_y, phase_x, phase_y, frequency;  // bend
  Point operator()(Point p) const {
    float x = p.x / 8 - 0.5f, y = p.y / 8 - 0.5f;
    x += wave_x * std::sin(frequency * y + phase_x);
    y += wave_y * std::sin(frequency * x + phase_y);
    return {xx * x + xy * y + dx, yx * x + yy * y + dy};
  }
};

Distortion draw_distortion(Dice& dice) {
  constexpr float kTurn = 0.35f, kSlant = 0.3f, kPi = std::numbers::pi_v<float>;
  float angle = dice(-kTurn, kTurn), slant = dice(-kSlant, kSlant);
  float width = dice(12, 20), height = dice(15, 22);
  float c = std::cos(angle), s = std::sin(angle), middle = kGlyphSize / 2.0f;
  Distortion d;
  d.xx = width * c, d.xy = height * (slant * c - s);
  d.yx = width * s, d.yy = height * (slant * s + c);
  d.dx = middle + dice(-4, 4), d.dy = middle + dice(-3, 3);
  d.wave_x = dice(0, 0.07f), d.wave_y = dice(0, 0.07f);
  d.phase_x = dice(0, 2 * kPi), d.phase_y = dice(0, 2 * kPi), d.frequency = dice(3, 7);
  return d;
}

struct Segment {
  Point from, to;
};

// The strokes as short segments after the distortion; short ones, so that straight lines can bend.
std::vector<Segment> draw_strokes(const Glyph& glyph, const Distortion& distort) {
  constexpr int kPieces = 3;
  std::vector<Segment> out;
  const Point* last = nullptr;
  Point a{}, b{};
  for (const char* s = glyph.strokes; *s;) {
    if (*s == ' ') {
      last = nullptr, ++s;
      continue;
    }
    b = {static_cast<float>(s[0] - '0'), static_cast<float>(s[1] - '0')};
    for (int i = 0; last && i < kPieces; ++i) {
      auto at = [&](int k) {
        float t = static_cast<float>(k) / kPieces;
        return distort({a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)});
      };
      out.push_back({at(i), at(i + 1)});
    }
    a = b, last = &a, s += 2;
  }
  return out;
}

float distance(Point p, const Segment& s) {
  float dx = s.to.x - s.from.x, dy = s.to.y - s.from.y, length = dx * dx + dy * dy;
  float t = length > 0 ? ((p.x - s.from.x) * dx + (p.y - s.from.y) * dy) / length : 0;
  t = std::clamp(t, 0.0f, 1.0f);
  return std::hypot(p.x - s.from.x - t * dx, p.y - s.from.y - t * dy);
}

// Adds what a pen of this width leaves, 0 to 1 per pixel.
void ink(std::span<float> image, const Segment& s, float width) {
  float reach = width / 2 + 1;
  auto first = [&](float v) { return std::clamp<int64_t>(static_cast<int64_t>(std::floor(v - reach)), 0, kGlyphSize); };
  auto last = [&](float v) { return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(v + reach)), 0, kGlyphSize); };
  for (int64_t y = first(std::min(s.from.y, s.to.y)); y < last(std::max(s.from.y, s.to.y)); ++y) {
    for (int64_t x = first(std::min(s.from.x, s.to.x)); x < last(std::max(s.from.x, s.to.x)); ++x) {
      float d = distance({static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f}, s);
      float& pixel = image[static_cast<size_t>(y * kGlyphSize + x)];
      pixel = std::max(pixel, std::clamp(width / 2 + 0.5f - d, 0.0f, 1.0f));
    }
  }
}

void draw(const Glyph& glyph, Dice& dice, uint8_t* out) {
  std::array<float, kGlyphSize * kGlyphSize> image{};
  Distortion distort = draw_distortion(dice);
  float width = dice(1.4f, 3.2f);
  for (const Segment& s : draw_strokes(glyph, distort)) ink(image, s, width);
  auto anywhere = [&] { return Point{dice(0, kGlyphSize), dice(0, kGlyphSize)}; };
  Point from = anywhere();
  ink(image, {from, {from.x + dice(-8, 8), from.y + dice(-8, 8)}}, 1.0f);  // a stray line
  float paper = dice(0.05f, 0.3f), pen = dice(0.7f, 0.95f), noise = dice(0.02f, 0.08f);
  if (dice.bits() & 1) std::swap(paper, pen);
  for (size_t i = 0; i < image.size(); ++i) {
    float v = paper + (pen - paper) * image[i] + noise * dice.normal();
    out[i] = static_cast<uint8_t>(std::lround(std::clamp(v, 0.0f, 1.0f) * 255));
  }
}

}  // namespace

int64_t glyph_classes() { return kClasses; }
char glyph_name(int64_t label) {
  DEFT_CHECK(label >= 0 && label < kClasses, IndexError, "glyph_name: there are classes 0 to {}, found {}",
             kClasses - 1, label);
  return kGlyphs[label].name;
}

ImageSet make_glyphs(uint64_t seed, int64_t count) {
  DEFT_CHECK(count >= 0, ValueError, "make_glyphs: count must not be negative, found {}", count);
  ImageSet set{zeros({count, 1, kGlyphSize, kGlyphSize}, DType::u8), zeros({count}, DType::i64), kClasses};
  uint8_t* images = set.images.data<uint8_t>();
  int64_t* labels = set.labels.data<int64_t>();
  parallel_for(0, count, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Dice dice(seed, static_cast<uint64_t>(i));
      labels[i] = static_cast<int64_t>(dice.bits() % kClasses);
      draw(kGlyphs[labels[i]], dice, images + i * kGlyphSize * kGlyphSize);
    }
  });
  return set;
}

}  // namespace deft::data
