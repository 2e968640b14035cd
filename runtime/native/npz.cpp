#include "npz.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

// Parts of a zip archive: what each begins with, and its length up to the name. All numbers are little-endian.
constexpr uint32_t MEMBER = 0x04034b50, LISTED = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50;
constexpr size_t MEMBER_BYTES = 30, LISTED_BYTES = 46, END_BYTES = 22, LOCATOR_BYTES = 20;
constexpr uint16_t VERSION = 20, UTF8 = 0x800, ZIP64 = 1;
constexpr uint32_t ELSEWHERE = 0xffffffff;  // the number takes more than 32 bits
constexpr size_t NPY_ALIGNMENT = 64;

static std::runtime_error unreadable(const std::string& path, const std::string& reason) {
    return std::runtime_error(path + ": " + reason);
}

Npz::Npz(const std::string& path) : path(path), file_(open(path.c_str(), O_RDONLY)) {
    if (file_ < 0) throw unreadable(path, std::string("cannot be read: ") + std::strerror(errno));
    const size_t size = size_t(lseek(file_, 0, SEEK_END));
    if (size < END_BYTES || number<uint32_t>(size - END_BYTES) != END)
        throw unreadable(path, "is no .npz file as numpy.savez writes it");
    size_t count = number<uint16_t>(size - END_BYTES + 10), start = number<uint32_t>(size - END_BYTES + 16);
    if (start == ELSEWHERE || count == 0xffff) {
        const size_t end64 = number<uint64_t>(size - END_BYTES - LOCATOR_BYTES + 8);
        if (number<uint32_t>(end64) != END64) throw unreadable(path, "is damaged");
        count = number<uint64_t>(end64 + 32), start = number<uint64_t>(end64 + 48);
    }
    directory(start, count);
}

Npz::~Npz() { close(file_); }

void Npz::read(size_t offset, char* data, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t some = pread(file_, data + done, bytes - done, off_t(offset + done));
        if (some <= 0) throw unreadable(path, "is damaged, it ends too early");
        done += size_t(some);
    }
}

template <typename Number>
Number Npz::number(size_t offset) const {
    Number found;
    read(offset, reinterpret_cast<char*>(&found), sizeof found);
    return found;
}

void Npz::directory(size_t at, size_t count) {
    for (; count > 0; --count) {
        if (number<uint32_t>(at) != LISTED) throw unreadable(path, "is damaged");
        const size_t name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30);
        std::string name(name_bytes, '\0');
        read(at + LISTED_BYTES, &name[0], name_bytes);
        if (number<uint16_t>(at + 10) != 0)
            throw unreadable(path, "'" + name + "' is compressed: write it with numpy.savez, not savez_compressed");
        size_t member = number<uint32_t>(at + 42);
        if (member == ELSEWHERE) {  // the last of the 64-bit numbers that are there, of which sizes come first
            const size_t extra = at + LISTED_BYTES + name_bytes;
            if (number<uint16_t>(extra) != ZIP64) throw unreadable(path, "is damaged");
            member = number<uint64_t>(extra + 4 + number<uint16_t>(extra + 2) - 8);
        }
        if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0)
            arrays[name.substr(0, name.size() - 4)] = stored(member);
        at += LISTED_BYTES + name_bytes + extra_bytes + number<uint16_t>(at + 32);
    }
}

// What stands behind a key of the header of an .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
static std::string value(const std::string& header, const std::string& key, char opening, char closing) {
    const size_t at = header.find("'" + key + "'");
    const size_t start = header.find(opening, at == std::string::npos ? at : at + key.size() + 2);
    const size_t stop = header.find(closing, start == std::string::npos ? start : start + 1);
    return stop == std::string::npos ? "" : header.substr(start + 1, stop - start - 1);
}

Stored Npz::stored(size_t member) const {
    if (number<uint32_t>(member) != MEMBER) throw unreadable(path, "is damaged");
    const size_t npy = member + MEMBER_BYTES + number<uint16_t>(member + 26) + number<uint16_t>(member + 28);
    const bool early = number<uint8_t>(npy + 6) < 2;  // version 1 of the format
    const size_t start = npy + (early ? 10 : 12);
    std::string header(early ? number<uint16_t>(npy + 8) : number<uint32_t>(npy + 8), '\0');
    read(start, &header[0], header.size());
    Stored found{value(header, "descr", '\'', '\''), {}, start + header.size()};
    const std::string sizes = value(header, "shape", '(', ')');
    for (const char* at = sizes.c_str(); *at;) {
        char* next;
        found.shape.push_back(std::strtoll(at, &next, 10));
        if (next == at) throw unreadable(path, "is damaged");
        at = next + std::strspn(next, ", ");
    }
    if (value(header, "fortran_order", ' ', ',') != "False" && found.shape.size() > 1)
        throw unreadable(path, "holds an array in Fortran order: write it with numpy.ascontiguousarray");
    return found;
}

static uint32_t crc32(const std::string& bytes) {
    static const auto table = [] {
        std::array<uint32_t, 256> made{};
        for (uint32_t i = 0; i < 256; ++i) {
            made[i] = i;
            for (int bit = 0; bit < 8; ++bit) made[i] = made[i] >> 1 ^ (made[i] & 1 ? 0xedb88320u : 0);
        }
        return made;
    }();
    uint32_t sum = ~0u;
    for (unsigned char byte : bytes) sum = sum >> 8 ^ table[(sum ^ byte) & 255];
    return ~sum;
}

template <typename Number>
static void put(std::string& file, Number number) {
    file.append(reinterpret_cast<const char*>(&number), sizeof number);
}

static std::string npy(const Kept& array) {
    std::string header = std::string("{'descr': '") + array.type->npy +
                         "', 'fortran_order': False, 'shape': " + text(array.shape) + ", }";
    header.append(NPY_ALIGNMENT - (10 + header.size() + 1) % NPY_ALIGNMENT, ' ');
    header += '\n';
    std::string file("\x93NUMPY\x01\x00", 8);
    put(file, uint16_t(header.size()));
    return file + header + array.bytes;
}

// What the entry of a member in the archive and in its directory have in common.
static void describe(std::string& file, const std::string& name, const std::string& content) {
    put(file, VERSION), put(file, UTF8), put(file, uint16_t(0));                // not compressed
    put(file, uint16_t(0)), put(file, uint16_t(1 << 5 | 1));                    // 1 January 1980
    put(file, crc32(content));
    put(file, uint32_t(content.size())), put(file, uint32_t(content.size()));
    put(file, uint16_t(name.size())), put(file, uint16_t(0));
}

std::string npz(const std::vector<Kept>& arrays) {
    std::string file, list;
    for (const Kept& array : arrays) {
        const std::string name = array.name + ".npy", content = npy(array);
        if (file.size() + content.size() >= ELSEWHERE)
            throw std::runtime_error("4 GB of outputs are too many for a file");
        put(list, LISTED), put(list, VERSION), describe(list, name, content);
        put(list, uint16_t(0)), put(list, uint16_t(0)), put(list, uint16_t(0)), put(list, uint32_t(0));
        put(list, uint32_t(file.size()));
        list += name;
        put(file, MEMBER), describe(file, name, content);
        file += name + content;
    }
    const uint32_t start = uint32_t(file.size());
    const uint16_t count = uint16_t(arrays.size());
    file += list;
    put(file, END), put(file, uint32_t(0)), put(file, count), put(file, count);
    put(file, uint32_t(list.size())), put(file, start), put(file, uint16_t(0));
    return file;
}

void save(const std::string& path, const std::string& bytes) {
    const std::string temporary = path + "." + std::to_string(getpid()) + ".part";
    FILE* file = std::fopen(temporary.c_str(), "wb");
    const bool written = file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (!file || std::fclose(file) != 0 || !written || std::rename(temporary.c_str(), path.c_str()) != 0) {
        const std::string reason = std::strerror(errno);
        std::remove(temporary.c_str());
        throw unreadable(path, "cannot be written: " + reason);
    }
}
