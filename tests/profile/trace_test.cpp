#include "profile/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "profile/device_ops.h"
#include "profile/device_time.h"

namespace deft::profile {
namespace {

using Json = nlohmann::ordered_json;

class TraceFileTest : public testing::Test {
 protected:
  std::string path = testing::TempDir() + "trace_" + std::to_string(getpid()) + ".json";
  ~TraceFileTest() override { std::filesystem::remove(path); }
  std::string text() const {
    std::ostringstream s;
    s << std::ifstream(path).rdbuf();
    return s.str();
  }
};

TraceEvent event(uint64_t begin, uint64_t end, const char* name, Bucket bucket = Bucket::kernel, uint16_t depth = 0) {
  return {begin, end, name, Site(), bucket, depth};
}

TEST_F(TraceFileTest, AnEmptyTraceIsValid) {
  write_trace({}, path);
  const Json json = Json::parse(text());
  ASSERT_EQ(json["traceEvents"].size(), 1u);
  EXPECT_EQ(json["traceEvents"][0]["name"], "process_name");
}

TEST_F(TraceFileTest, EventsHaveTimesNamesAndLines) {
  Trace trace{.start = 1000, .seconds_per_tick = 1e-9, .threads = {}, .labels = {}};
  trace.threads.push_back({"main \"one\"", EventRing(10 * sizeof(TraceEvent))});
  TraceEvent e = event(3500, 6000, "matmul", Bucket::linear_algebra);
  e.site = Site::current();
  trace.threads[0].events.push(e);
  trace.threads[0].events.push(event(7000, 7001, "add"));
  const CounterTrack memory{"memory, MB", {{0.5, 12.5}, {0.6, NAN}, {0.7, 3}}};
  write_trace(trace, path, {&memory, 1});
  const Json events = Json::parse(text())["traceEvents"];
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1]["args"]["name"], "main \"one\"");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "matmul");
  EXPECT_EQ(events[2]["cat"], "linear algebra");
  EXPECT_EQ(events[2]["ts"], 2.5);
  EXPECT_EQ(events[2]["dur"], 2.5);
  EXPECT_EQ(events[2]["args"]["at"], to_string(e.site));
  EXPECT_EQ(events[2]["tid"], events[1]["tid"]);
  EXPECT_EQ(events[3]["dur"], 0.001);
  EXPECT_FALSE(events[3].contains("args"));
  EXPECT_EQ(events[4]["ph"], "C");
  EXPECT_EQ(events[4]["args"]["value"], 12.5);
  EXPECT_EQ(events[5]["ts"], 0.7e6);
}

TEST_F(TraceFileTest, AnyNameIsEscaped) {
  const char* const names[] = {"a\"b\\c", "tab\tnew\nline\x01", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
                               "broken \xff\xc3", "\xed\xa0\x80 \xc0\xaf \xf5\x80\x80\x80"};
  Trace trace;
  trace.threads.push_back({"", EventRing(10 * sizeof(TraceEvent))});
  for (const char* name : names) trace.threads[0].events.push(event(0, 1, name));
  write_trace(trace, path);
  const Json events = Json::parse(text())["traceEvents"];
  ASSERT_EQ(events.size(), 7u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(events[2 + i]["name"].get<std::string>(), names[i]);
  EXPECT_EQ(events[5]["name"].get<std::string>(), "broken \xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(TraceFileTest, OneEventPerLineHoweverMany) {
  Trace trace;
  trace.threads.push_back({"main", EventRing(5000 * sizeof(TraceEvent))});
  for (uint64_t i = 0; i < 7000; ++i) trace.threads[0].events.push(event(i, i + 1, "add"));
  EXPECT_EQ(trace.threads[0].events.dropped(), 2000u);
  write_trace(trace, path);
  const std::string written = text();
  EXPECT_EQ(Json::parse(written)["traceEvents"].size(), 5002u);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 5004);
}

TEST(Trace, AFileThatCannotBeWritten) {
  EXPECT_THROW(write_trace({}, "/no/such/folder/trace.json"), SaveError);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(write_trace({}, "/dev/full"), SaveError);
}

// --- A device beside the host ---

TEST(DeviceTime, HostSpansAreWhatTheInnermostZonesDid) {
  Trace trace{.start = 100, .seconds_per_tick = 1, .threads = {}, .labels = {}};
  EventRing events(10 * sizeof(TraceEvent));
  events.push(event(110, 120, "kernel", Bucket::kernel, 1));
  events.push(event(120, 130, "record", Bucket::autograd, 1));
  events.push(event(105, 140, "op", Bucket::dispatch, 0));
  events.push(event(150, 160, "wait", Bucket::sync, 1));
  events.push(event(150, 170, "item", Bucket::dispatch, 0));
  const std::vector<TimeSpan> expected = {{5, 10, Bucket::dispatch},  {10, 20, Bucket::kernel},
                                          {20, 30, Bucket::autograd}, {30, 40, Bucket::dispatch},
                                          {50, 60, Bucket::sync},     {60, 70, Bucket::dispatch}};
  const HostZones host(trace, events);
  EXPECT_TRUE(host_spans(host) == expected);
  EXPECT_EQ(host.at(4), -1);
  EXPECT_STREQ(host.zones()[static_cast<size_t>(host.at(15))].event->name, "kernel");
  EXPECT_STREQ(host.zones()[static_cast<size_t>(host.at(65))].event->name, "item");
  EXPECT_EQ(host.at(45), -1);
  EXPECT_EQ(host.at(80), -1);
}

TEST(DeviceTime, AKernelsZoneThatOnlyAsksForItIsDispatch) {
  Trace trace{.start = 0, .seconds_per_tick = 1, .threads = {}, .labels = {}};
  EventRing events(10 * sizeof(TraceEvent));
  events.push(event(10, 20, "add", Bucket::kernel, 1));
  events.push(event(5, 25, "add", Bucket::dispatch, 0));
  events.push(event(30, 40, "mul", Bucket::kernel, 0));  // on the host
  const HostZones host(trace, events);
  const DeviceWork device[] = {{12, 3}, {-1, 2}, {27, 1}};
  const std::vector<TimeSpan> expected = {
      {5, 10, Bucket::dispatch}, {10, 20, Bucket::dispatch}, {20, 25, Bucket::dispatch}, {30, 40, Bucket::kernel}};
  EXPECT_TRUE(host_spans(host, zones_that_ask(host, device)) == expected);
}

// --- What ops asked of a device ---

OpRow row(const char* name, double kernel_seconds, bool on_device, double bytes = 0, bool backward = false) {
  OpRow r;
  r.name = name, r.kernel_seconds = kernel_seconds, r.on_device = on_device, r.bytes = bytes, r.backward = backward;
  r.calls = 1;
  return r;
}

TEST(DeviceOps, KernelsBelongToTheInnermostOpThatAsked) {
  Trace trace{.start = 0, .seconds_per_tick = 1, .threads = {}, .labels = {}};
  EventRing events(20 * sizeof(TraceEvent));
  events.push(
      event(12, 14, "allocate", Bucket::allocation, 2));  // no op: what is asked for there is the op's around it
  events.push(event(10, 20, "add", Bucket::kernel, 1));
  events.push(event(5, 25, "linear", Bucket::dispatch, 0));
  events.push(event(32, 38, "add", Bucket::kernel, 1));
  events.push(event(30, 40, "backward", Bucket::autograd, 0));
  events.push(event(50, 60, "plan", Bucket::dispatch, 0));
  const HostZones host(trace, events);
  Profile p;
  p.ops = {row("add", 8, true), row("add", 6, true, 0, true), row("linear", 1, true), row("plan", 2, false),
           row("idle", 3, true)};
  p.ops[0].overhead_seconds = 1;
  const DeviceWork device[] = {{13, 100}, {15, 10}, {22, 7}, {35, 30}, {55, 4}, {45, 1000}, {-1, 1000}};
  add_device_time_to_ops(p, host, device, 2);
  ASSERT_EQ(p.ops[0].name, "add");  // the longest first
  EXPECT_FALSE(p.ops[0].backward);
  EXPECT_DOUBLE_EQ(p.ops[0].kernel_seconds, 220);
  EXPECT_DOUBLE_EQ(p.ops[0].overhead_seconds, 9);
  EXPECT_TRUE(p.ops[1].backward);
  EXPECT_DOUBLE_EQ(p.ops[1].kernel_seconds, 60);
  EXPECT_EQ(p.ops[2].name, "linear");
  EXPECT_DOUBLE_EQ(p.ops[2].kernel_seconds, 14);
  EXPECT_EQ(p.ops[3].name, "plan");  // whose results nobody told of
  EXPECT_TRUE(p.ops[3].on_device);
  EXPECT_DOUBLE_EQ(p.ops[3].kernel_seconds, 8);
  EXPECT_DOUBLE_EQ(p.ops[4].kernel_seconds, 0);  // asked for nothing
  EXPECT_DOUBLE_EQ(p.ops[4].overhead_seconds, 3);
}

TEST(DeviceOps, RowsOfOneLineShareByTheirBytes) {
  Trace trace{.start = 0, .seconds_per_tick = 1, .threads = {}, .labels = {}};
  EventRing events(20 * sizeof(TraceEvent));
  events.push(event(0, 10, "to", Bucket::kernel, 0));
  const HostZones host(trace, events);
  Profile p;
  p.ops = {row("to", 1, true, 300), row("to", 1, true, 100), row("to", 5, false, 1000)};
  const DeviceWork device[] = {{5, 8}};
  add_device_time_to_ops(p, host, device);
  EXPECT_DOUBLE_EQ(p.ops[0].kernel_seconds, 6);
  EXPECT_DOUBLE_EQ(p.ops[1].kernel_seconds, 5);  // on the host, as before
  EXPECT_FALSE(p.ops[1].on_device);
  EXPECT_DOUBLE_EQ(p.ops[2].kernel_seconds, 2);
}

double of(const DeviceShares& s, Bucket b) { return s.seconds[static_cast<size_t>(b)]; }

TEST(DeviceTime, BusyTimeIsTheDevicesAndGapsAreTheHosts) {
  const TimeSpan host[] = {{0, 4, Bucket::dispatch}, {4, 10, Bucket::sync}, {12, 20, Bucket::data_wait}};
  const TimeSpan device[] = {{2, 5, Bucket::linear_algebra}, {6, 8, Bucket::kernel}, {15, 16, Bucket::copy}};
  const DeviceShares s = share_time(host, device, 24);
  EXPECT_DOUBLE_EQ(s.busy_seconds, 6);
  EXPECT_DOUBLE_EQ(of(s, Bucket::linear_algebra), 3);
  EXPECT_DOUBLE_EQ(of(s, Bucket::kernel), 2);
  EXPECT_DOUBLE_EQ(of(s, Bucket::copy), 1);
  EXPECT_DOUBLE_EQ(of(s, Bucket::dispatch), 2);
  EXPECT_DOUBLE_EQ(of(s, Bucket::sync), 3);  // 5 to 6 and 8 to 10
  EXPECT_DOUBLE_EQ(of(s, Bucket::data_wait), 7);
  EXPECT_DOUBLE_EQ(of(s, Bucket::other), 6);
}

TEST(DeviceTime, StreamsOverlapAndEdgesAreCut) {
  const TimeSpan host[] = {{0, 10, Bucket::dispatch}};
  const TimeSpan device[] = {
      {-1, 3, Bucket::kernel}, {1, 2, Bucket::copy}, {2, 5, Bucket::copy}, {8, 14, Bucket::kernel}};
  const DeviceShares s = share_time(host, device, 10);
  EXPECT_DOUBLE_EQ(s.busy_seconds, 7);
  EXPECT_DOUBLE_EQ(of(s, Bucket::kernel), 5);
  EXPECT_DOUBLE_EQ(of(s, Bucket::copy), 2);
  EXPECT_DOUBLE_EQ(of(s, Bucket::dispatch), 3);
  EXPECT_DOUBLE_EQ(of(share_time(host, {}, 10), Bucket::dispatch), 10);
  EXPECT_DOUBLE_EQ(of(share_time({}, {}, 10), Bucket::other), 10);
}

TEST(DeviceTime, AProfileGetsTheDevicesPart) {
  Profile p;
  p.wall_seconds = 10;
  p.seconds[static_cast<size_t>(Bucket::dispatch)] = 10;
  const TimeSpan host[] = {{0, 10, Bucket::dispatch}};
  const TimeSpan device[] = {{1, 5, Bucket::linear_algebra}};
  add_device_time(p, host, device);
  EXPECT_DOUBLE_EQ(p.device_busy_seconds, 4);
  EXPECT_DOUBLE_EQ(p[Bucket::linear_algebra], 4);
  EXPECT_DOUBLE_EQ(p[Bucket::dispatch], 6);
  EXPECT_DOUBLE_EQ(p.sum(), 10);
}

TEST(DeviceTime, WhatIsKnownStandsForTheWhole) {
  Profile p;
  p.wall_seconds = 10;
  const TimeSpan host[] = {{6, 10, Bucket::dispatch}};  // what was before is lost
  const TimeSpan device[] = {{1, 5, Bucket::linear_algebra}, {7, 9, Bucket::kernel}};
  add_device_time(p, host, device, 6);
  EXPECT_DOUBLE_EQ(p[Bucket::kernel], 5);
  EXPECT_DOUBLE_EQ(p[Bucket::dispatch], 5);
  EXPECT_DOUBLE_EQ(p[Bucket::linear_algebra], 0);
  EXPECT_DOUBLE_EQ(p.device_busy_seconds, 5);
  EXPECT_DOUBLE_EQ(p.sum(), 10);
}

}  // namespace
}  // namespace deft::profile
