#include "data/image_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "runtime/per_thread.h"

namespace deft::data {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, const std::string& found) {
  throw LoadError("image folder", path, what, 0, found);
}
std::string text_of(int error) { return std::generic_category().message(error); }

bool is_image_name(std::string_view name) {
  auto ends = [&](std::string_view with) {
    return name.size() > with.size() &&
           std::equal(with.begin(), with.end(), name.end() - static_cast<std::ptrdiff_t>(with.size()),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  };
  return ends(".jpg") || ends(".jpeg") || ends(".png");
}

struct Listing {
  std::vector<std::string> folders, files;  // sorted
};

Listing list(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (!folder) fail(path, "folder", "cannot be opened: " + text_of(errno));
  Listing out;
  for (errno = 0; const dirent* entry = readdir(folder.get()); errno = 0) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type != DT_DIR && entry->d_type != DT_REG) {  // a link, or a file system that does not say
      struct stat s;
      is_folder = stat((path + "/" + name).c_str(), &s) == 0 && S_ISDIR(s.st_mode);
    }
    (is_folder ? out.folders : out.files).push_back(std::move(name));
  }
  if (errno != 0) fail(path, "folder", "cannot be read: " + text_of(errno));
  std::sort(out.folders.begin(), out.folders.end());
  std::sort(out.files.begin(), out.files.end());
  return out;
}

// Goes through a class and all folders in it.
struct Walk {
  std::string root;
  std::vector<std::string> images;  // below root
  int64_t other_files = 0, loops = 0;
  std::vector<std::pair<dev_t, ino_t>> open;  // the folders from the class to here

  void enter(const std::string& folder) {
    std::string path = root + "/" + folder;
    struct stat s;
    if (stat(path.c_str(), &s) != 0) fail(path, "folder", "has vanished: " + text_of(errno));
    std::pair<dev_t, ino_t> id{s.st_dev, s.st_ino};
    if (std::find(open.begin(), open.end(), id) != open.end()) {
      ++loops;
      return;
    }
    open.push_back(id);
    Listing listing = list(path);
    for (const std::string& name : listing.files) {
      bool image = is_image_name(name);
      if (image) images.push_back(folder + "/" + name);
      other_files += !image;
    }
    for (const std::string& name : listing.folders) enter(folder + "/" + name);
    open.pop_back();
  }
};

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

void read_image_file(const std::string& path, int64_t most, std::vector<uint8_t>& bytes) {
  auto fail_file = [&](uint64_t offset, const std::string& found) {
    throw LoadError("image", path, "file", offset, found);
  };
  OpenFile file(path);
  struct stat s;
  if (file.fd() < 0 || fstat(file.fd(), &s) != 0) fail_file(0, "cannot be opened: " + text_of(errno));
  if (!S_ISREG(s.st_mode)) fail_file(0, "is not a regular file");
  if (s.st_size > most)
    fail_file(0, fmt::format("has {} bytes, more than the {} that are allowed (DecodeOptions::most_file_bytes)",
                             s.st_size, most));
  bytes.resize(static_cast<size_t>(s.st_size));
  size_t at = 0;
  while (at < bytes.size()) {
    ssize_t got = read(file.fd(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(at, "cannot be read: " + text_of(errno));
    if (got == 0) fail_file(at, fmt::format("ends here, but had {} bytes when it was opened", bytes.size()));
    at += static_cast<size_t>(got);
  }
}

ImageFolder::ImageFolder(const std::string& root, const ImageOptions& options) : root_(root), transform_(options) {
  fields_ = {transform_.field("image"), {"label", DType::i64, {}, 0}};
  Listing listing = list(root);
  if (listing.folders.empty())
    fail(root, "folder", "has no folders in it; expected one per class, as in root/cat/1.jpg");
  skipped_files_ = static_cast<int64_t>(listing.files.size());
  for (const std::string& name : listing.folders) {
    Walk walk{root, {}, 0, 0, {}};
    walk.enter(name);
    if (walk.images.empty())
      fail(root + "/" + name, "class", "has no images (.jpg, .jpeg, .png); remove the folder or add some");
    for (std::string& path : walk.images) samples_.push_back({std::move(path), static_cast<int32_t>(classes_.size())});
    classes_.push_back(name);
    skipped_files_ += walk.other_files;
    skipped_loops_ += walk.loops;
  }
}

const ImageFolder::Sample& ImageFolder::sample(int64_t index) const {
  DEFT_CHECK(index >= 0 && index < size(), IndexError, "image folder {}: sample {} of {}", root_, index, size());
  return samples_[static_cast<size_t>(index)];
}
std::string ImageFolder::path(int64_t index) const { return root_ + "/" + sample(index).path; }
int64_t ImageFolder::label(int64_t index) const { return sample(index).label; }

void ImageFolder::get(int64_t index, SampleWriter& out) const {
  struct Memory {
    ImageWorkspace work;
    std::vector<uint8_t> bytes;
    std::string path;
  };
  Memory& memory = PerThread<Memory>::get();
  memory.path.assign(root_).append("/").append(sample(index).path);
  {
    auto stage = out.stage(Stage::read);
    read_image_file(memory.path, transform_.options().decode.most_file_bytes, memory.bytes);
  }
  {
    auto stage = out.stage(Stage::decode);
    transform_.decode({memory.bytes, memory.path}, out.rng(), memory.work);
  }
  auto stage = out.stage(Stage::transform);
  transform_.write(memory.work, out.fixed<void>(0));
  *out.fixed<int64_t>(1) = sample(index).label;
}

}  // namespace deft::data
