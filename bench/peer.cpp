#include "bench/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "bench/machine.h"

namespace deft::bench {

namespace {

// Writing to a peer that has ended must be an error, not the end of this program.
class IgnoreBrokenPipe {
 public:
  IgnoreBrokenPipe() : old_(signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoreBrokenPipe() { signal(SIGPIPE, old_); }
  IgnoreBrokenPipe(const IgnoreBrokenPipe&) = delete;
  IgnoreBrokenPipe& operator=(const IgnoreBrokenPipe&) = delete;

 private:
  void (*old_)(int);
};

// A file, or else a command with arguments between blanks.
std::vector<std::string> split_words(const std::string& program) {
  std::vector<std::string> words;
  std::istringstream in(program);
  if (access(program.c_str(), F_OK) == 0) return {program.find('/') == program.npos ? "./" + program : program};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::unique_ptr<Peer> Peer::start(const std::string& program) {
  int down[2], up[2];
  std::vector<std::string> words = split_words(program);
  if (words.empty() || pipe2(down, O_CLOEXEC) != 0) return nullptr;
  if (pipe2(up, O_CLOEXEC) != 0) {
    close(down[0]);
    close(down[1]);
    return nullptr;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C is for us; the peer ends with its input
  words.push_back("--serve");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  int error = posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(down[0]);
  close(up[1]);

  std::unique_ptr<Peer> peer(new Peer);
  peer->to_peer_ = down[1];
  peer->from_peer_ = up[0];
  if (error != 0) return nullptr;
  peer->process_ = pid;
  Json hello = Json::parse(peer->ask(""), nullptr, false);
  if (!hello.contains("peer")) return nullptr;
  peer->name_ = hello["peer"];
  return peer;
}

Peer::~Peer() {
  close(to_peer_);  // its input ends, and so does it
  close(from_peer_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

std::optional<double> Peer::ns_per_op(const std::string& case_name, const std::string& mode, int batches) {
  Json answer = Json::parse(ask(fmt::format("{}\t{}\t{}", case_name, mode, batches)), nullptr, false);
  // Workers of OpenMP spin on for up to 20 ms after their work and would take cores from the next measurement.
  if (mode != "threads=1") std::this_thread::sleep_for(std::chrono::milliseconds(30));
  if (!answer.contains("ns_per_op") || !answer["ns_per_op"].is_number()) return {};
  return answer["ns_per_op"].get<double>();
}

std::string Peer::ask(const std::string& request) {
  IgnoreBrokenPipe guard;
  std::string line = request + "\n";
  if (write(to_peer_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return {};
  std::string answer;
  for (char c = 0; read(from_peer_, &c, 1) == 1 && c != '\n';) answer += c;
  return answer;
}

std::string program_beside_this(const std::string& name) {
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  std::filesystem::path path = self.parent_path() / name;
  return access(path.c_str(), X_OK) == 0 ? path.string() : std::string();
}

}  // namespace deft::bench
