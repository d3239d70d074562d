// The zones of a thread as they lay inside each other, from the events of its trace: what it did at a given moment.
#pragma once

#include <vector>

#include "profile/trace.h"

namespace deft::profile {

class HostZones {
 public:
  struct ZoneOf {
    const TraceEvent* event;
    int32_t outer;  // -1: none
    bool backward;  // inside of a backward pass
  };
  // The time of a zone itself, without those inside it; in seconds since the session's start.
  struct Piece {
    double begin, end;
    int32_t zone;
  };

  // `events` must outlive this. What the ring dropped is not there: the earliest.
  HostZones(const Trace& trace, const EventRing& events);

  const std::vector<ZoneOf>& zones() const { return zones_; }
  const std::vector<Piece>& pieces() const { return pieces_; }  // in order, without overlaps
  int32_t at(double seconds) const;                             // the innermost zone; -1: outside all

 private:
  std::vector<ZoneOf> zones_;
  std::vector<Piece> pieces_;
};

}  // namespace deft::profile
