// A text that a signal handler may read at any moment: it always ends, though it may still be half the old one.
#pragma once

#include <cstring>
#include <string>

class Note {
public:
    static constexpr size_t SIZE = 256;  // what is longer is cut off
    explicit Note(const std::string& text) { *this = text; }
    Note& operator=(const std::string& text) {
        std::strncpy(text_, text.c_str(), SIZE - 1);  // never the last of them, which is zero
        return *this;
    }
    const char* text() const { return text_; }

private:
    char text_[SIZE] = {};
};
