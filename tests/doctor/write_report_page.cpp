// Reads a report as JSON from standard input, writes its page, or with --text [WIDTH] its summary, to standard output.
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "doctor/report_html.h"
#include "doctor/report_text.h"

int main(int argc, char** argv) {
  auto report = nlohmann::ordered_json::parse(std::cin);
  bool as_text = argc > 1 && std::string(argv[1]) == "--text";
  int width = argc > 2 ? std::atoi(argv[2]) : 100;
  std::cout << (as_text ? deft::doctor::report_text(report, false, width) : deft::doctor::report_html(report));
}
