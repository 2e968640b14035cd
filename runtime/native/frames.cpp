#include "frames.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

// Standard normal for floats, small enough to be an index or a class otherwise. The same for a seed on every machine,
// but not those of the Python programs: what is compared with the whole model is given as a file.
class Random {
public:
    Random(long seed, long index, const std::string& name) : state_(uint64_t(seed) << 20 ^ uint64_t(index)) {
        for (unsigned char c : name) state_ = (state_ ^ c) * 0x100000001b3u;
    }
    double uniform() {  // 0 < u < 1; splitmix64
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return (double((z ^ z >> 31) >> 11) + 0.5) / double(uint64_t(1) << 53);
    }
    double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }
    int below(int n) { return int(uniform() * n); }

private:
    uint64_t state_;
};

// Half precision, cut off; normal numbers alone.
static uint16_t half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const int exponent = int(bits >> 23 & 255) - 127 + 15;
    const uint32_t rest = exponent <= 0 ? 0 : uint32_t(exponent) << 10 | (bits >> 13 & 1023);
    return uint16_t((bits >> 16 & 0x8000) | rest);
}

template <typename Element>
static void store(char* data, size_t i, Element element) {
    std::memcpy(data + i * sizeof element, &element, sizeof element);
}

static void randomise(Buffer& buffer, Random random) {
    const std::string type = buffer.type->name;
    const size_t size = buffer.type->size, count = buffer.bytes() / size;
    for (size_t i = 0; i < count; ++i) {
        if (type == "float32") store(buffer.data, i, float(random.normal()));
        else if (type == "float64") store(buffer.data, i, random.normal());
        else if (type == "float16") store(buffer.data, i, half(float(random.normal())));
        else buffer.data[i * size] = char(random.below(type == "bool" ? 2 : 8));  // the rest of it is zero
    }
}

static void check(const Npz& file, const Buffer& buffer) {
    const auto found = file.arrays.find(buffer.name);
    if (found == file.arrays.end())
        throw std::runtime_error(file.path + " has no array for input '" + buffer.name + "'");
    const Stored& array = found->second;
    const bool frames = !array.shape.empty() && array.shape[0] > 0;
    if (!frames || array.npy != buffer.type->npy || Shape(array.shape.begin() + 1, array.shape.end()) != buffer.shape) {
        const Type* type = type_npy(array.npy);
        throw std::runtime_error(file.path + ": '" + buffer.name + "' is " + (type ? type->name : array.npy) + " " +
                                 text(array.shape) + ", needed are frames of " + buffer.type->name + " " +
                                 text(buffer.shape));
    }
}

// As many as will be used, or as a limit holds that frames.py has, too.
static std::vector<std::vector<char>> made(const Buffer& buffer, long seed, long count) {
    const size_t most = (size_t(64) << 20) / std::max<size_t>(1, buffer.bytes());
    std::vector<std::vector<char>> frames(std::max<size_t>(1, std::min(size_t(count), most)));
    for (size_t index = 0; index < frames.size(); ++index) {
        frames[index].resize(buffer.bytes());
        Buffer frame = buffer;
        frame.data = frames[index].data();
        randomise(frame, Random(seed, long(index), buffer.name));
    }
    return frames;
}

Frames::Frames(const std::string& path, long seed, const std::vector<Buffer*>& inputs, long count) {
    if (path.empty()) {
        for (const Buffer* buffer : inputs) made_[buffer->name] = made(*buffer, seed, count);
    } else if (!inputs.empty()) {
        file_ = std::make_unique<Npz>(path);
        for (const Buffer* buffer : inputs) check(*file_, *buffer);
    }
}

void Frames::fill(long index, const std::vector<Buffer*>& inputs) const {
    for (Buffer* buffer : inputs) {
        if (file_) {
            const Stored& array = file_->arrays.at(buffer->name);
            const size_t frame = size_t(index % array.shape[0]);
            file_->read(array.offset + frame * buffer->bytes(), buffer->data, buffer->bytes());
        } else {
            const auto& frames = made_.at(buffer->name);
            std::memcpy(buffer->data, frames[size_t(index) % frames.size()].data(), buffer->bytes());
        }
    }
}
