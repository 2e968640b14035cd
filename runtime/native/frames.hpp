// The frames of the inputs that one rank holds: those of a file, or random ones, which are made beforehand: a stream
// would measure how fast.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "npz.hpp"

class Frames {
public:
    Frames(const std::string& path, long seed, const std::vector<Buffer*>& inputs, long count);
    void fill(long index, const std::vector<Buffer*>& inputs) const;  // where there are fewer frames they start again

private:
    std::unique_ptr<Npz> file_;
    std::map<std::string, std::vector<std::vector<char>>> made_;  // by input
};
