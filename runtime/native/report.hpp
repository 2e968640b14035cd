// What ranks hand in when their frames are done, and the files that rank 0 makes of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clock.hpp"
#include "program.hpp"

// What one rank hands in. frames: by its own clock; outputs: the bytes of all frames, in the order of rank.outputs.
struct Account {
    double processor_s = 0;
    std::optional<double> stolen;  // from its cores
    std::vector<std::vector<Record>> frames;
    std::vector<std::string> outputs;
};

// Gather everything on rank 0, which writes the outputs and returns the trace as a line, if they are wanted.
// clocks: on rank 0, of each other host's first rank.
std::string hand_in(const Program& program, Rank& rank, const Options& options, const Account& account,
                    const std::map<int, Clock>& clocks);
