#include "quota.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

static const std::string ROOT = "/sys/fs/cgroup/";

static double ratio(std::istream& text) {
    double quota = 0, period = 0;
    const bool told = bool(text >> quota >> period) && quota > 0 && period > 0;
    return told ? std::min(quota / period, 1.0) : 1.0;
}

static double of_group(const std::string& folder) {
    std::ifstream both(folder + "/cpu.max");
    if (both) return ratio(both);
    std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
    std::stringstream words;
    words << quota.rdbuf() << ' ' << period.rdbuf();
    return ratio(words);
}

double core_share() {
    std::ifstream groups("/proc/self/cgroup");
    double least = 1;
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
        const std::string group = ROOT + controllers + line.substr(second + 1);
        for (size_t end = ROOT.size() + controllers.size(); end != std::string::npos; end = group.find('/', end + 1))
            least = std::min(least, of_group(group.substr(0, end)));
        least = std::min(least, of_group(group));
    }
    return least;
}
