#include "pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <new>

constexpr size_t ALIGNMENT = 64;     // bytes; a cache line, and what vector instructions like
constexpr size_t BLOCK = 256 << 20;  // bytes of address space that are taken at a time
constexpr size_t LARGEST = 2 << 20;  // bytes of a huge page: of one of 32 MB a rank might need next to nothing

// Bytes of a huge page; 0 where there are none, or they are too large.
static size_t huge() {
    size_t size = 0;
    std::ifstream("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") >> size;
    return size <= LARGEST ? size : 0;
}

size_t Pages::room_of(size_t size) {
    return (size / ALIGNMENT + 1) * ALIGNMENT;
}

char* Pages::take(size_t size) {
    const size_t room = room_of(size);
    if (room > left_) {
        const size_t page = huge();
        left_ = std::max(room, BLOCK);
        void* block = mmap(nullptr, left_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) throw std::bad_alloc();
        next_ = static_cast<char*>(block);
#ifdef MADV_HUGEPAGE
        if (page) {
            madvise(block, left_ + page, MADV_HUGEPAGE);  // a kernel that has them switched off refuses
            next_ += -reinterpret_cast<uintptr_t>(block) % page;
        }
#endif
    }
    char* taken = next_;
    next_ += room;
    left_ -= room;
    return taken;
}
