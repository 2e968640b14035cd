// Rank 0 of 3 on edge00_cpu01, for tiny: holds data, computes nothing.

#include "native/rank.hpp"

#pragma GCC optimize("O0")  // nothing here takes time, and compiling it would

static Frame make(Rank& rank) {
    // Every tensor, or piece of one, that this rank holds.
    Buffer& b0 = rank.buffer("in/put.0 \042x\042 [1] \316\261", {1, 3, 8, 8}, "float32");
    rank.input(b0);

    Send& m0 = rank.send(b0, {{0, 1}, {0, 3}, {0, 8}, {0, 8}}, /* dest */ 1, /* tag */ 0);
    Send& m1 = rank.send(b0, {{0, 1}, {0, 3}, {0, 8}, {0, 8}}, /* dest */ 2, /* tag */ 1);

    return [&] {  // all that it refers to lives as long as the rank
        m0.start();  // in/put.0 "x" [1] \u03b1 to rank 1
        m1.start();  // in/put.0 "x" [1] \u03b1 to rank 2
    };
}

extern const Program rank_00;
const Program rank_00 = {
    /* rank */ 0,
    /* device */ "edge00_cpu01",
    /* threads */ 1,
    /* provider */ "CPUExecutionProvider",
    /* arena */ true,
    make,
};
