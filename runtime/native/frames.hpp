// The frames of the inputs that one rank holds: those of a file, or random ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "npz.hpp"

class Frames {
public:
    Frames(const std::string& path, long seed, const std::vector<Buffer*>& inputs);
    void fill(long index, const std::vector<Buffer*>& inputs) const;  // a file with fewer frames starts again

private:
    std::unique_ptr<Npz> file_;
    long seed_;
};
