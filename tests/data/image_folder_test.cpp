#if defined(DEFT_HAS_PNG) && defined(DEFT_HAS_JPEG)
#include "data/image_folder.h"

#include <sys/stat.h>

#include "image_files.h"

namespace deft::data {
namespace {

// The memory of one sample.
class OneSample : public SampleWriter {
 public:
  OneSample(const Dataset& set, uint64_t seed, int64_t epoch, int64_t index) : rng_(seed, epoch, index) {
    for (const Field& f : set.fields()) {
      size_t bytes = size_of(f.dtype);
      for (int64_t s : f.shape) bytes *= static_cast<size_t>(s);
      fields.emplace_back(bytes);
    }
    set.get(index, *this);
  }
  SampleRng& rng() override { return rng_; }
  int64_t label() const {
    int64_t v;
    std::memcpy(&v, fields[1].data(), sizeof(v));
    return v;
  }
  std::vector<std::vector<char>> fields;
  StageTimes stages;

 protected:
  void* fixed_bytes(int field) override { return fields[static_cast<size_t>(field)].data(); }
  void* varying_bytes(int, const Shape&) override { return nullptr; }
  StageTimes& times() override { return stages; }

 private:
  SampleRng rng_;
};

ImageOptions small() {
  ImageOptions o = evaluation_images(8, 8);
  o.dtype = DType::u8;
  return o;
}
std::string jpeg(uint64_t seed = 1) { return write_jpeg(make_picture(20, 16, 3, seed)); }

TEST(ImageFolder, ClassesAndOrder) {
  ImageFiles files;
  for (const char* name :
       {"dog/b.jpg", "dog/a.JPEG", "cat/z.png", "cat/deep/er/1.jpg", "cat/deep/0.jpg", "Zebra/x.jpg"})
    files.write(name, jpeg());
  files.write("cat/notes.txt", "no picture");
  files.write("dog/.jpg", "only an ending");
  files.write("README", "not in a class");
  ImageFolder set(files.root, small());
  EXPECT_EQ(set.classes(), (std::vector<std::string>{"Zebra", "cat", "dog"}));
  EXPECT_EQ(set.skipped_files(), 3);
  std::vector<std::string> expected = {"Zebra/x.jpg",       "cat/z.png",  "cat/deep/0.jpg",
                                       "cat/deep/er/1.jpg", "dog/a.JPEG", "dog/b.jpg"};
  std::vector<int64_t> labels = {0, 1, 1, 1, 2, 2};
  ASSERT_EQ(set.size(), 6);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(set.path(i), (files.root / expected[static_cast<size_t>(i)]).string());
    EXPECT_EQ(set.describe(i), set.path(i));
    EXPECT_EQ(OneSample(set, 1, 0, i).label(), labels[static_cast<size_t>(i)]);
    EXPECT_EQ(set.label(i), labels[static_cast<size_t>(i)]);
  }
  ASSERT_EQ(set.fields().size(), 2u);
  EXPECT_EQ(set.fields()[0].shape, (Shape{8, 8, 3}));
  EXPECT_EQ(set.fields()[0].dtype, DType::u8);
  EXPECT_EQ(set.fields()[1].dtype, DType::i64);
  EXPECT_THROW(set.path(6), IndexError);
  EXPECT_THROW(set.label(-1), IndexError);
}

TEST(ImageFolder, PixelsAreThoseOfTheTransform) {
  ImageFiles files;
  files.write("a/1.jpg", jpeg(1));
  files.write("a/2.jpg", jpeg(2));
  ImageOptions o = training_images(12);
  ImageFolder set(files.root, o);
  ImageTransform transform(o);
  ImageWorkspace work;
  for (int64_t i = 0; i < 2; ++i) {
    SampleRng rng(3, 4, i);
    std::vector<char> expected(12 * 12 * 3 * sizeof(float));
    std::string file = jpeg(static_cast<uint64_t>(i + 1));
    transform.decode(encoded(file), rng, work);
    transform.write(work, expected.data());
    OneSample sample(set, 3, 4, i);
    EXPECT_EQ(sample.fields[0], expected);
    for (Stage s : {Stage::read, Stage::decode, Stage::transform})
      EXPECT_GT(sample.stages.ns[static_cast<size_t>(s)], 0) << name_of(s);
  }
}

TEST(ImageFolder, NamesDoNotDecideTheFormat) {
  ImageFiles files;
  files.write("a/really_png.jpg", write_png(make_picture(9, 9)));
  files.write("a/really_jpeg.png", jpeg());
  ImageFolder set(files.root, small());
  for (int64_t i = 0; i < 2; ++i) EXPECT_NO_THROW(OneSample(set, 1, 0, i));
}

TEST(ImageFolder, LinksAndLoops) {
  ImageFiles files;
  files.write("a/1.jpg", jpeg());
  files.write("elsewhere.d/2.jpg", jpeg());
  std::filesystem::create_directory_symlink("..", files.root / "a/up");  // contains itself
  std::filesystem::create_directory_symlink(".", files.root / "a/self");
  std::filesystem::create_directory_symlink("../elsewhere.d", files.root / "a/far");
  std::filesystem::create_symlink("nowhere.jpg", files.root / "a/broken.jpg");
  ImageFolder set(files.root, small());
  EXPECT_GE(set.skipped_loops(), 1);
  int64_t broken = -1, far = -1;
  for (int64_t i = 0; i < set.size(); ++i) {
    if (set.path(i).ends_with("a/broken.jpg") && set.label(i) == 0 && broken < 0) broken = i;
    if (set.path(i).ends_with("a/far/2.jpg")) far = i;
  }
  ASSERT_GE(broken, 0);
  ASSERT_GE(far, 0);
  EXPECT_NO_THROW(OneSample(set, 1, 0, far));
  std::string error = load_error([&] { OneSample(set, 1, 0, broken); });
  EXPECT_NE(error.find("broken.jpg: file at byte 0: cannot be opened: No such file or directory"), error.npos) << error;
}

TEST(ImageFolder, WhatIsWrongWithAFolder) {
  ImageFiles files;
  std::string root = files.root;
  EXPECT_EQ(load_error([&] { ImageFolder(root + "/none", small()); }),
            "image folder: " + root + "/none: folder at byte 0: cannot be opened: No such file or directory");
  EXPECT_NE(load_error([&] { ImageFolder(root, small()); }).find("has no folders in it"), std::string::npos);
  files.write("a/1.txt", "");
  EXPECT_EQ(load_error([&] { ImageFolder(root, small()); }),
            "image folder: " + root +
                "/a: class at byte 0: has no images (.jpg, .jpeg, .png); remove the folder or add some");
  EXPECT_NE(load_error([&] { ImageFolder(files.write("a/1.jpg", ""), small()); }).find("Not a directory"),
            std::string::npos);
}

TEST(ImageFolder, WhatIsWrongWithAFile) {
  ImageFiles files;
  files.write("a/0.jpg", jpeg());
  files.write("a/1.jpg", "");
  files.write("a/2.jpg", jpeg().substr(0, 500));
  files.write("a/3.jpg", "GIF89a");
  files.write("a/4.jpg", write_jpeg(make_picture(100, 100)));
  files.write("a/5.jpg", jpeg());
  files.write("a/6.png", write_png(make_picture(9, 9)).substr(0, 60));
  std::filesystem::create_directory(files.root / "a/7.jpg");
  ImageOptions o = small();
  o.decode.most_pixels = 9000;
  ImageFolder set(files.root, o);
  ASSERT_EQ(set.size(), 7);
  std::filesystem::remove(files.root / "a/5.jpg");
  const char* expected[] = {"no error",
                            "1.jpg: file at byte 0: is empty",
                            "2.jpg: ",
                            "3.jpg: first bytes at byte 0: are those of neither",
                            "4.jpg: size at byte 0: 100 x 100 are more than the 9000 pixels",
                            "5.jpg: file at byte 0: cannot be opened: No such file or directory",
                            "6.png: chunks at byte "};
  for (int64_t i = 0; i < set.size(); ++i) {
    std::string error = load_error([&] { OneSample(set, 1, 0, i); });
    EXPECT_NE(error.find(expected[i]), error.npos) << error;
  }
  EXPECT_NO_THROW(OneSample(set, 1, 0, 0));  // the thread's decoder survived all that
  o.decode.most_file_bytes = 100;
  ImageFolder strict(files.root / "", o);
  EXPECT_NE(load_error([&] { OneSample(strict, 1, 0, 0); }).find("more than the 100 that are allowed"),
            std::string::npos);
  std::filesystem::remove_all(files.root / "a");
  EXPECT_NE(load_error([&] { OneSample(set, 1, 0, 0); }).find("a/0.jpg: file at byte 0: cannot be opened"),
            std::string::npos);
}

TEST(ImageFolder, FilesThatAreNoFiles) {
  ImageFiles files;
  files.write("a/0.jpg", jpeg());
  ASSERT_EQ(mkfifo((files.root / "a/1.jpg").c_str(), 0600), 0);  // opening it must not wait for a writer
  ImageFolder set(files.root, small());
  EXPECT_NE(load_error([&] { OneSample(set, 1, 0, 1); }).find("1.jpg: file at byte 0: is not a regular file"),
            std::string::npos);
}

}  // namespace
}  // namespace deft::data
#endif
