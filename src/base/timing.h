// Measuring time and writing it down.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace renorm {

// Wall-clock seconds since it was made or last restarted.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Returns seconds() and starts again from zero.
  double lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

  // Does not count `seconds` of the time that has passed.
  void exclude(double seconds) {
    start_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// CPU seconds of all threads of this process so far. They exclude time in which other processes run.
double cpu_seconds();

// The middle value, or the mean of the two middle ones. `values` must not be empty.
double median(std::vector<double> values);

// "0.5 s", "41 s", "3 min 20 s", "2 h 05 min", "3 d 4 h"; "?" for a negative, absurdly long or NaN duration.
std::string duration_text(double seconds);

}  // namespace renorm
