// Tensors, or pieces of them, as they lie in the memory of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using Shape = std::vector<int64_t>;
struct Interval {  // half-open, in elements
    int64_t start, stop;
};
using Box = std::vector<Interval>;  // one interval a dimension

// An element type under the three names that it has.
struct Type {
    const char* name;  // numpy's: float32
    const char* npy;   // in the header of an .npy file: <f4
    int onnx;          // number in ONNX and in ONNX Runtime
    size_t size;       // bytes
};

const Type& type_named(const std::string& name);
const Type* type_numbered(int onnx);   // null where this program does not know it
const Type* type_npy(const std::string& npy);

struct Buffer {
    std::string name;
    Shape shape;
    const Type* type;
    char* data;

    size_t bytes() const;
};

// A box of a buffer, as pieces of memory of one length each, in order; one piece if the box is contiguous.
struct Pieces {
    size_t length;
    std::vector<size_t> offsets;
};

Pieces pieces(const Buffer& buffer, const Box& box);
std::string text(const Shape& shape);  // (1, 3, 8, 8)
