// What a generated main.cpp calls: the options, and frame after frame.
#pragma once

#include <vector>

#include "rank.hpp"

// How many frames to run, on what, and where the results go: as in runtime/options.py of the Python programs.
struct Options {
    long frames = 1, warmup = 0, threads = 0, seed = 0;  // threads: 0 is the plan's
    bool barrier = false, stream = false;
    std::string input, output, report, provider, bundle;
    std::vector<Options> passes() const;  // what is asked for, one after the other: frames together, then a stream
};

Options parse(int count, char** words);
void run_frames(const Program& program, Rank& rank, const Options& options);
int run(const std::vector<Program>& programs, int count, char** words);  // one of the programs: that of this rank
