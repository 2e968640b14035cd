// The memory of a rank: how much of it is resident, and what each part of its work adds to that.
#pragma once

#include <functional>

// In bytes, as in Memory of trace.py of the Python programs, which says what each part is.
struct Footprint {
    Footprint();
    static void growing(long& part, const std::function<void()>& action);  // what it makes resident belongs to the part
    void opened();  // a segment is open: what there was at most until now was there for the segments
    long base, buffers = 0, segments = 0, input = 0, frames = 0, opening = 0;
};

long resident_bytes();
long peak_bytes();  // the largest resident memory that this process has had
