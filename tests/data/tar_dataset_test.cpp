#include "data/tar_dataset.h"

#include <gtest/gtest.h>
#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

#include <set>

#include "data/captured_sample.h"
#include "data/loader.h"
#include "data/tar_builder.h"
#include "data/transforms.h"
#ifdef DEFT_HAS_JPEG
#include "image_files.h"
#endif
#include "io/io_util.h"
#include "io/npy.h"

namespace deft::data {
namespace {

using io::expect_load_error;

std::string short_name(const Record& r) { return r.name.substr(r.name.rfind('/') + 1); }
std::string text_of(const Record::Part& p) { return {p.bytes.begin(), p.bytes.end()}; }

// Record NAME with the parts cls and txt.
std::string record(const std::string& name, int label) {
  return tar_entry({name + ".cls", std::to_string(label)}) + tar_entry({name + ".txt", "text of " + name});
}

class TarShard : public ::testing::Test {
 protected:
  // `counts[i]` records in shard i, numbered through.
  std::vector<std::string> write(const std::vector<int>& counts) {
    std::vector<std::string> paths;
    int number = 0;
    for (int count : counts) {
      std::string bytes;
      for (int i = 0; i < count; ++i, ++number) bytes += record("r" + std::to_string(number), number);
      paths.push_back(write("shard" + std::to_string(paths.size()) + ".tar", bytes + tar_end()));
    }
    return paths;
  }
  std::string write(const std::string& name, const std::string& bytes) {
    io::write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  static TarDataset labelled(const std::vector<std::string>& shards, const TarOptions& options = {}) {
    return TarDataset(shards, {label_field(), bytes_field("txt")}, options);
  }
  static std::vector<std::string> names(RecordStream& stream) {
    std::vector<std::string> found;
    for (Record r; stream.next(r);) {
      found.push_back(short_name(r));
      EXPECT_EQ(r.parts.size(), 2u);
      EXPECT_EQ("r" + text_of(r.parts[0]), found.back());
      EXPECT_EQ(text_of(r.parts[1]), "text of " + found.back());
    }
    return found;
  }
  static std::vector<std::string> names(const TarDataset& set, uint64_t seed = 0, int64_t epoch = 0) {
    return names(*set.open(seed, epoch));
  }
  static std::vector<std::string> range(int begin, int end) {
    std::vector<std::string> out;
    for (int i = begin; i < end; ++i) out.push_back("r" + std::to_string(i));
    return out;
  }
  io::Folder folder_;
};

TEST_F(TarShard, InOrderWithEmptyShards) {
  EXPECT_EQ(names(labelled(write({3, 0, 2}))), range(0, 5));
  std::string nothing = write("nothing.tar", "");
  EXPECT_EQ(names(labelled({nothing, folder_ / "shard2.tar"})), range(3, 5));
}

TEST_F(TarShard, RecordsAreNamedAfterShardAndKey) {
  auto stream = labelled(write({1})).open(0, 0);
  Record r;
  ASSERT_TRUE(stream->next(r));
  EXPECT_EQ(r.name, folder_ / "shard0.tar/r0");
  EXPECT_EQ(r.parts[0].name, "cls");
  EXPECT_FALSE(stream->next(r));
  EXPECT_FALSE(stream->next(r));
}

TEST_F(TarShard, KeysEndAtTheFirstDotOfTheLastComponent) {
  std::string archive = tar({{"v1.0/a.seg.PNG", "1"},
                             {"v1.0/a.jpg", "2"},
                             {"v1.0/._a.jpg", "mac"},
                             {"README", "no dot"},
                             {"v1.1/a.jpg", "3"}});
  TarDataset set({write("a.tar", archive)}, {Field{"x", DType::u8, {}}}, [](auto&, auto&) {});
  auto stream = set.open(0, 0);
  Record r;
  ASSERT_TRUE(stream->next(r));
  EXPECT_TRUE(r.name.ends_with("a.tar/v1.0/a")) << r.name;
  ASSERT_EQ(r.parts.size(), 2u);
  EXPECT_EQ(r.parts[0].name, "seg.png");
  EXPECT_EQ(r.parts[1].name, "jpg");
  ASSERT_TRUE(stream->next(r));
  EXPECT_TRUE(r.name.ends_with("a.tar/v1.1/a")) << r.name;
  ASSERT_EQ(r.parts.size(), 1u);
  EXPECT_FALSE(stream->next(r));
}

TEST_F(TarShard, OnlyNeededPartsAreRead) {
  TarDataset set(write({2}), {label_field()});
  auto stream = set.open(0, 0);
  Record r;
  ASSERT_TRUE(stream->next(r));
  ASSERT_EQ(r.parts.size(), 1u);
  EXPECT_EQ(r.parts[0].name, "cls");
}

TEST_F(TarShard, OrderIsAFunctionOfSeedAndEpoch) {
  auto shards = write({20, 30, 1, 40, 9});
  TarDataset set = labelled(shards, {.shuffle_shards = true, .shuffle_buffer = 16});
  std::vector<std::string> first = names(set, 5, 2), all = range(0, 100);
  EXPECT_EQ(names(set, 5, 2), first);
  EXPECT_EQ(names(labelled(shards, {.shuffle_shards = true, .shuffle_buffer = 16}), 5, 2), first);
  EXPECT_NE(names(set, 5, 3), first);
  EXPECT_NE(names(set, 6, 2), first);
  for (uint64_t seed = 0; seed < 20; ++seed) {  // every record once
    std::vector<std::string> found = names(set, seed, 0);
    EXPECT_EQ(std::set(found.begin(), found.end()), std::set(all.begin(), all.end()));
    EXPECT_EQ(found.size(), 100u);
  }
}

TEST_F(TarShard, ShardsAloneAreShuffledWhole) {
  TarDataset set = labelled(write({2, 2, 2, 2, 2, 2}), {.shuffle_shards = true});
  std::vector<std::string> found = names(set, 1, 0);
  EXPECT_NE(found, range(0, 12));
  for (size_t i = 0; i < 12; i += 2) EXPECT_EQ(std::stoi(found[i].substr(1)) + 1, std::stoi(found[i + 1].substr(1)));
}

TEST_F(TarShard, TheBufferBoundsTheDisorder) {
  TarDataset set = labelled(write({200}), {.shuffle_buffer = 10});
  std::vector<std::string> found = names(set, 3, 0);
  EXPECT_NE(found, range(0, 200));
  EXPECT_NE(found, names(set, 3, 1));
  EXPECT_NE(found, names(set, 4, 0));
  for (int i = 0; i < 200; ++i) EXPECT_LT(std::stoi(found[static_cast<size_t>(i)].substr(1)), i + 10);
  // A buffer as large as the data gives each record every place: here the last one comes first now and then.
  TarDataset whole = labelled(write({8}), {.shuffle_buffer = 100});
  std::set<std::string> firsts;
  for (uint64_t seed = 0; seed < 100; ++seed) firsts.insert(names(whole, seed, 0)[0]);
  EXPECT_EQ(firsts.size(), 8u);
}

TEST_F(TarShard, SkippingIsReadingWithoutTheBytes) {
  auto shards = write({20, 30, 7});
#ifdef DEFT_HAS_ZLIB
  std::string plain = io::read_file(shards[1]);
  gzFile gz = gzopen(shards[1].c_str(), "wb1");
  gzwrite(gz, plain.data(), static_cast<unsigned>(plain.size()));
  gzclose(gz);
#endif
  for (int64_t buffer : {0, 5, 100}) {
    TarDataset set = labelled(shards, {.shuffle_shards = true, .shuffle_buffer = buffer});
    std::vector<std::string> all = names(set, 9, 1);
    ASSERT_EQ(all.size(), 57u);
    for (int64_t skipped : {0, 1, 19, 40, 57}) {
      auto stream = set.open(9, 1);
      EXPECT_EQ(dynamic_cast<TarStream&>(*stream).skip(skipped), skipped);
      EXPECT_EQ(names(*stream), std::vector(all.begin() + skipped, all.end())) << buffer << " " << skipped;
    }
    auto stream = set.open(9, 1);  // half way, after some were read
    Record r;
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream->next(r));
    EXPECT_EQ(dynamic_cast<TarStream&>(*stream).skip(20), 20);
    EXPECT_EQ(names(*stream), std::vector(all.begin() + 30, all.end()));
    EXPECT_EQ(dynamic_cast<TarStream&>(*set.open(9, 1)).skip(1000), 57);
  }
}

TEST_F(TarShard, SkippedBytesThatAreGoneAreAnError) {
  auto shards = write({10});
  auto stream = labelled(shards, {.shuffle_buffer = 4}).open(0, 0);
  dynamic_cast<TarStream&>(*stream).skip(2);
  std::filesystem::resize_file(shards[0], 600);
  Record r;
  EXPECT_THROW(while (stream->next(r)), LoadError);
}

TEST_F(TarShard, DecodesDefaultParts) {
  io::save_npy(folder_ / "x.npy", arange(0, 6, 1, DType::f32).view({2, 3}));
  std::string npy = io::read_file(folder_ / "x.npy");
  std::string archive = tar({{"a.jpeg", "\xff\xd8"}, {"a.cls", " -12\n"}, {"a.npy", npy}, {"a.json", "{}"}});
  Field image{"image", DType::u8, {2}}, array{"array", DType::f32, {2, 3}}, rows{"rows", DType::f32, {-1, 3}};
  auto copy = [](std::span<const uint8_t> bytes, int field, SampleWriter& out) {
    std::memcpy(out.fixed<char>(field), bytes.data(), 2);
  };
  TarDataset set({write("a.tar", archive)},
                 {image_field(image, copy), label_field(), array_field(array), array_field(rows), bytes_field("json")});
  EXPECT_EQ(set.fields()[1].name, "label");
  EXPECT_EQ(set.fields()[4].name, "json");
  Record r;
  ASSERT_TRUE(set.open(0, 0)->next(r));
  CapturedSample s(set.fields());
  set.decode(r, s);
  EXPECT_EQ(s.text(0), "\xff\xd8");
  EXPECT_EQ(s.values<int64_t>(1), std::vector<int64_t>{-12});
  EXPECT_EQ(s.values<float>(2), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(s.values<float>(3), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(s.shape(3), Shape({2, 3}));
  EXPECT_EQ(s.text(4), "{}");
  EXPECT_EQ(s.shape(4), Shape({2}));

  TarDataset wrong_type({folder_ / "a.tar"}, {array_field({"array", DType::i64, {2, 3}})});
  expect_load_error([&] { wrong_type.decode(r, s); }, "header", 0, "found f32 [2, 3], but the field 'array' is i64");
  TarDataset wrong_shape({folder_ / "a.tar"}, {array_field({"array", DType::f32, {-1, 4}})});
  expect_load_error([&] { wrong_shape.decode(r, s); }, "header", 0, "is f32 [-1, 4]");
}

#ifdef DEFT_HAS_JPEG
TEST_F(TarShard, PicturesGoThroughATransform) {
  std::string jpeg = write_jpeg(make_picture(60, 40));
  ImageOptions options = training_images(24);
  TarDataset set({write("a.tar", tar({{"a.jpg", jpeg}, {"b.JPEG", jpeg.substr(0, 300)}}))}, {image_field(options)});
  EXPECT_EQ(set.fields()[0].name, "image");
  auto stream = set.open(0, 0);
  Record r;
  ASSERT_TRUE(stream->next(r));
  CapturedSample found(set.fields()), expected(set.fields());
  set.decode(r, found);
  ImageTransform transform(options);
  ImageWorkspace work;
  transform.decode(encoded(jpeg), expected.rng(), work);
  transform.write(work, expected.fixed<char>(0));
  EXPECT_EQ(found.text(0), expected.text(0));
  ASSERT_TRUE(stream->next(r));
  EXPECT_NE(load_error([&] { set.decode(r, found); }).find("a.tar/b.jpeg"), std::string::npos);
}
#endif

TEST_F(TarShard, ThroughTheLoaderStoppedAndResumed) {
  auto set =
      std::make_shared<TarDataset>(labelled(write({20, 30, 1, 40, 9}), {.shuffle_shards = true, .shuffle_buffer = 16}));
  auto take = [](DataLoader& loader, int most) {
    std::vector<int64_t> all;
    Batch batch;
    for (int i = 0; i < most && loader.next(batch); ++i) {
      auto labels = batch["label"].to_vector<int64_t>();
      all.insert(all.end(), labels.begin(), labels.end());
    }
    return all;
  };
  DataLoader straight(set, {.batch_size = 7, .seed = 3, .workers = 0});
  std::vector<int64_t> expected = take(straight, 1000);
  EXPECT_EQ(expected.size(), 100u);
  for (int workers : {0, 1, 4}) {
    std::vector<int64_t> found;
    DataLoader loader(set, {.batch_size = 7, .seed = 3, .workers = workers});
    for (int stop : {2, 5, 1}) {  // each goes on in a loader of its own
      auto part = take(loader, stop);
      found.insert(found.end(), part.begin(), part.end());
      State state = loader.state();
      loader = DataLoader(set, {.batch_size = 7, .seed = 3, .workers = workers});
      loader.load_state(state);
    }
    auto rest = take(loader, 1000);
    found.insert(found.end(), rest.begin(), rest.end());
    EXPECT_EQ(found, expected) << workers;
  }
}

TEST_F(TarShard, LabelsAreWholeNumbers) {
  TarDataset set(write({1}), {label_field()});
  CapturedSample s(set.fields());
  for (const char* bad : {"", "x", "1.5", "1 2", "99999999999999999999"}) {
    std::string text = bad;
    Record r{"s.tar/a", {{"cls", {text.begin(), text.end()}}}};
    expect_load_error([&] { set.decode(r, s); }, "label", 0, "expected a whole number");
  }
}

// Records never reach over the border of two shards, and what is missing is an error with the record's name.
TEST_F(TarShard, SplitRecordsLackTheirParts) {
  std::string a = write("a.tar", record("r0", 0) + tar_entry({"r1.cls", "1"}) + tar_end());
  std::string b = write("b.tar", tar_entry({"r1.txt", "x"}) + tar_end());
  TarDataset set = labelled({a, b});
  auto stream = set.open(0, 0);
  CapturedSample s(set.fields());
  Record r;
  ASSERT_TRUE(stream->next(r));
  set.decode(r, s);
  ASSERT_TRUE(stream->next(r));
  try {
    set.decode(r, s);
    ADD_FAILURE() << "decoded";
  } catch (const LoadError& e) {
    EXPECT_EQ(e.file, a + "/r1");
    EXPECT_NE(std::string(e.what()).find("'txt' needs one of the parts txt, but there is cls"), std::string::npos)
        << e.what();
  }
  ASSERT_TRUE(stream->next(r));
  EXPECT_THROW(set.decode(r, s), LoadError);
  EXPECT_FALSE(stream->next(r));
}

TEST_F(TarShard, DuplicatePartsAreAnErrorOfTheirRecordOnly) {
  std::string twice = record("r0", 0) + tar_entry({"r0.cls", "7"});
  auto stream = labelled({write("a.tar", twice + record("r1", 1) + tar_end())}).open(0, 0);
  Record r;
  expect_load_error([&] { stream->next(r); }, "part of '" + (folder_ / "a.tar/r0") + "'", 5 * 512,
                    "the part 'cls' is there twice");
  ASSERT_TRUE(stream->next(r));
  EXPECT_EQ(short_name(r), "r1");
  EXPECT_FALSE(stream->next(r));
}

TEST_F(TarShard, GoesOnAfterABrokenShard) {
  auto shards = write({3, 3, 3});
  std::string broken = io::read_file(shards[1]);
  broken[2 * 1024 + 10] ^= 1;  // in the header of the second record
  io::write_file(shards[1], broken);
  std::filesystem::remove(shards[2]);
  for (int64_t buffer : {0, 4}) {
    auto stream = labelled(shards, {.shuffle_buffer = buffer}).open(0, 0);
    std::set<std::string> found;
    int errors = 0;
    for (Record r;;) {
      try {
        if (!stream->next(r)) break;
        found.insert(short_name(r));
      } catch (const LoadError&) {
        ASSERT_LT(++errors, 10);
      }
    }
    EXPECT_EQ(errors, 2);
    std::vector<std::string> good = range(0, 3);
    EXPECT_EQ(found, std::set(good.begin(), good.end()));
  }
}

TEST_F(TarShard, RefusesWrongArguments) {
  EXPECT_THROW(labelled({}), ValueError);
  EXPECT_THROW(labelled({"a.tar"}, {.shuffle_buffer = -1}), ValueError);
  EXPECT_THROW(TarDataset({"a.tar"}, std::vector<TarField>{}), ValueError);
  EXPECT_THROW(TarDataset({"a.tar"}, {Field{"x", DType::u8, {}}}, nullptr), ValueError);
  EXPECT_THROW(labelled({"a.tar"}).open(0, -1), ValueError);
}

}  // namespace
}  // namespace deft::data
