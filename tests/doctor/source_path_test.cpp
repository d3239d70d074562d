#include "doctor/source_path.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "deft/deft.h"
#include "doctor/rule_util.h"

namespace deft::doctor {
namespace {

namespace fs = std::filesystem;

// A folder of sources, left behind by nobody; the program runs elsewhere.
class SourcePath : public testing::Test {
 protected:
  SourcePath() {
    fs::create_directories(root / "app/deep");
    fs::create_directories(root / "build");
    for (const char* file : {"app/train.cpp", "app/deep/more.cpp", "CMakeLists.txt", "app/CMakeLists.txt"})
      std::ofstream(root / file) << "\n";
  }
  ~SourcePath() override {
    fs::current_path(before);
    fs::remove_all(root);
  }
  std::string at(const char* file) const { return (root / file).string(); }

  fs::path before = fs::current_path();
  fs::path root = fs::canonical(fs::temp_directory_path()) / ("deft_source_path_" + std::to_string(::getpid()));
};

TEST_F(SourcePath, FromTheFolderTheProgramRunsIn) {
  fs::current_path(root / "app");
  EXPECT_EQ(shown_path(at("app/train.cpp")), "train.cpp");
  EXPECT_EQ(shown_path(at("app/deep/more.cpp")), "deep/more.cpp");
  EXPECT_EQ(shown_path(at("build/../app/train.cpp")), "train.cpp");
}

TEST_F(SourcePath, OrFromTheRootOfTheSources) {
  fs::current_path(root / "build");
  EXPECT_EQ(shown_path(at("app/train.cpp")), "app/train.cpp");
  EXPECT_EQ(source_root(at("app/deep/more.cpp")), root.string());
  fs::create_directories(root / "app/deep/.git");  // nearer, and surer
  EXPECT_EQ(shown_path(at("app/deep/more.cpp")), "more.cpp");
}

TEST_F(SourcePath, OrAsItIs) {
  fs::current_path(root / "build");
  EXPECT_EQ(shown_path("/nowhere/train.cpp"), "/nowhere/train.cpp");
  EXPECT_EQ(shown_path("../app/train.cpp"), "../app/train.cpp");
  EXPECT_EQ(shown_path(at("app/gone.cpp")), at("app/gone.cpp"));
  fs::current_path("/");
  EXPECT_EQ(shown_path("/nowhere/train.cpp"), "/nowhere/train.cpp");  // everything lies below the root
}

TEST_F(SourcePath, ForViewersFromTheRootOfTheSources) {
  fs::current_path(root / "app");
  const RelativePath found = path_in_sources(at("app/train.cpp"));
  EXPECT_EQ(found.base, root.string());
  EXPECT_EQ(found.path, "app/train.cpp");
  EXPECT_EQ(path_in_sources("train.cpp").base, (root / "app").string());
  EXPECT_EQ(path_in_sources("gone.cpp").base, "");
  EXPECT_EQ(path_in_sources("/nowhere/train.cpp").path, "/nowhere/train.cpp");
}

TEST(LibraryFiles, AreNotTheUsers) {
  EXPECT_TRUE(is_library_file("/usr/include/deft/nn/linear.h"));
  EXPECT_FALSE(is_library_file(__FILE__));
  EXPECT_FALSE(is_library_file(""));
}

// Of the program `deft` as it was compiled beside the library.
TEST(LibraryFiles, ThoseOfTheProgramAreDeftsToo) {
  const std::string library = std::string(library_root()), root = library.substr(0, library.size() - 4);
  EXPECT_EQ(library.substr(library.size() - 4), "src/");
  EXPECT_TRUE(is_deft_file((root + "apps/deft/doctor_workload.cpp").c_str()));
  EXPECT_TRUE(is_deft_file((library + "models/cnn.cpp").c_str()));
  EXPECT_FALSE(is_library_file((root + "apps/deft/doctor_workload.cpp").c_str()));
  EXPECT_FALSE(is_deft_file(__FILE__));
  EXPECT_FALSE(is_deft_file("train.cpp"));
}

// Cnn brings its pictures into another layout in a line of its own: the line that calls it is the user's.
TEST(LibraryFiles, AreNotToBlame) {
  int line = 0;
  test::Lint found = test::lint([&] {
    models::Cnn model;
    model.eval();
    NoGradGuard no_grad;
    Tensor images = rand({8, 1, 28, 28});
    for (int i = 0; i < 20; ++i) {
      line = __LINE__ + 1;
      model(images);
    }
  });
  EXPECT_FINDING(found, "D015", line);
  for (const Finding& f : found.all) EXPECT_FALSE(is_library_file(f.file.c_str())) << f.to_string();
}

}  // namespace
}  // namespace deft::doctor
