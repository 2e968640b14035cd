// Arrays in files as numpy.savez writes them: .npy members of a zip archive, not compressed, first axis = frame.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "buffer.hpp"

// An array in a file that has been opened.
struct Stored {
    std::string npy;  // element type: <f4
    Shape shape;
    size_t offset;  // of its first element in the file
};

class Npz {
public:
    explicit Npz(const std::string& path);
    ~Npz();
    Npz(const Npz&) = delete;
    void read(size_t offset, char* data, size_t bytes) const;
    std::map<std::string, Stored> arrays;
    const std::string path;

private:
    void directory(size_t start, size_t count);
    Stored stored(size_t member) const;
    template <typename Number>
    Number number(size_t offset) const;
    int file_;
};

// An array that is to be written: several frames, one after the other.
struct Kept {
    std::string name;
    const Type* type;
    Shape shape;  // with the frames
    std::string bytes;
};

std::string npz(const std::vector<Kept>& arrays);  // the whole file
void save(const std::string& path, const std::string& bytes);  // all or nothing
