#include "buffer.hpp"

#include <stdexcept>

static const Type TYPES[] = {
    {"float32", "<f4", 1, 4}, {"uint8", "|u1", 2, 1},  {"int8", "|i1", 3, 1},     {"uint16", "<u2", 4, 2},
    {"int16", "<i2", 5, 2},   {"int32", "<i4", 6, 4},  {"int64", "<i8", 7, 8},    {"bool", "|b1", 9, 1},
    {"float16", "<f2", 10, 2}, {"float64", "<f8", 11, 8}, {"uint32", "<u4", 12, 4}, {"uint64", "<u8", 13, 8},
};

const Type& type_named(const std::string& name) {
    for (const Type& type : TYPES)
        if (name == type.name) return type;
    throw std::runtime_error("a C++ program knows no elements of type " + name);
}

const Type* type_numbered(int onnx) {
    for (const Type& type : TYPES)
        if (onnx == type.onnx) return &type;
    return nullptr;
}

const Type* type_npy(const std::string& npy) {
    for (const Type& type : TYPES)
        if (npy == type.npy) return &type;
    return nullptr;
}

size_t Buffer::bytes() const {
    size_t size = type->size;
    for (int64_t n : shape) size *= size_t(n);
    return size;
}

Pieces pieces(const Buffer& buffer, const Box& box) {
    size_t length = buffer.type->size, k = box.size();
    auto whole = [&](size_t d) { return box[d].start == 0 && box[d].stop == buffer.shape[d]; };
    while (k > 0 && whole(k - 1)) length *= size_t(buffer.shape[--k]);
    std::vector<size_t> offsets{0};
    size_t stride = length;  // of dimension k - 1: all behind it is whole
    if (k > 0) {
        const auto [start, stop] = box[--k];
        offsets[0] = size_t(start) * stride;
        length *= size_t(stop - start);
        stride *= size_t(buffer.shape[k]);
    }
    for (; k > 0; stride *= size_t(buffer.shape[k])) {
        const auto [start, stop] = box[--k];
        std::vector<size_t> inner;
        inner.swap(offsets);
        for (int64_t i = start; i < stop; ++i)
            for (size_t offset : inner) offsets.push_back(size_t(i) * stride + offset);
    }
    return {length, offsets};
}

std::string text(const Shape& shape) {
    std::string found = "(";
    for (size_t k = 0; k < shape.size(); ++k) found += (k ? ", " : "") + std::to_string(shape[k]);
    return found + (shape.size() == 1 ? ",)" : ")");
}
