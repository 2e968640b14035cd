#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

Footprint::Footprint() : base(resident_bytes()) {}

void Footprint::growing(long& part, const std::function<void()>& action) {
    const long before = resident_bytes();
    action();
    part += resident_bytes() - before;
}

void Footprint::opened() { opening = std::max(0L, peak_bytes() - base); }

long resident_bytes() {
    long all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

long peak_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "VmHWM:") {
            long kilobytes = 0;
            status >> kilobytes;
            return kilobytes * 1024;
        }
    return 0;
}
