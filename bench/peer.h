// Another framework measured in the same run: a program that answers one line per request, so that both sides can take
// turns. Request: case TAB mode TAB batches; the mode is a grad mode, a device or, for the CPU engine, "threads=2".
// Answer: {"case":...,"mode":...,"ns_per_op":...,"peer":...}.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace deft::bench {

class Peer {
 public:
  // A file, or a command with arguments between blanks ("python3.12 bench/peer_torch.py"). Nothing where there is no
  // such program, or it does not start.
  static std::unique_ptr<Peer> start(const std::string& program);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }  // "libtorch 1.13.1"
  // Best time so far, after `batches` more. Nothing for a case it does not know, or once it has ended.
  std::optional<double> ns_per_op(const std::string& case_name, const std::string& mode, int batches);

 private:
  Peer() = default;
  std::string ask(const std::string& request);

  int process_ = -1, to_peer_ = -1, from_peer_ = -1;
  std::string name_;
};

// The peer program `name` beside the running one; "" where there is none.
std::string program_beside_this(const std::string& name);

}  // namespace deft::bench
