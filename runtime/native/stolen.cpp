#include "stolen.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "communicator.hpp"

static cpu_set_t cores() {
    cpu_set_t found;
    CPU_ZERO(&found);
    sched_getaffinity(0, sizeof found, &found);
    return found;
}

// Seconds stolen from the cores of this process since the system started: the eighth number of their lines, proc_stat(5).
static std::optional<double> stolen_s() {
    const cpu_set_t mine = cores();
    std::ifstream stat("/proc/stat");
    int seen = 0, core = 0;
    long all = 0;
    for (std::string line; std::getline(stat, line);) {
        std::istringstream words(line);
        std::string name;
        long ticks = 0;
        words >> name;
        if (std::sscanf(name.c_str(), "cpu%d", &core) != 1 || core >= CPU_SETSIZE || !CPU_ISSET(core, &mine)) continue;
        for (int column = 0; column < 8; ++column) words >> ticks;
        if (!words) return std::nullopt;
        all += ticks, ++seen;
    }
    if (seen == 0 || seen < CPU_COUNT(&mine)) return std::nullopt;
    return double(all) / double(sysconf(_SC_CLK_TCK));
}

Stolen::Stolen() : began_s(now_s()), before_s(stolen_s()) {}

std::optional<double> Stolen::part() const {
    const std::optional<double> after_s = stolen_s();
    const cpu_set_t mine = cores();
    const double all_s = (now_s() - began_s) * CPU_COUNT(&mine);
    if (!before_s || !after_s || all_s <= 0) return std::nullopt;
    return std::clamp((*after_s - *before_s) / all_s, 0.0, 1.0);
}
