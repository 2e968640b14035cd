// The memory of a rank's buffers: side by side, in huge pages where Linux has them. See runtime/pages.py.
#pragma once

#include <cstddef>

class Pages {
public:
    Pages() = default;
    Pages(const Pages&) = delete;  // what it has given out is its own
    char* take(size_t size);       // zeroed, from where a cache line begins; never given back
    static size_t room_of(size_t size);  // that it takes

private:
    char* next_ = nullptr;
    size_t left_ = 0;
};
