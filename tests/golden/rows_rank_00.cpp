// Rank 0 of 2 on edge00_cpu01, for rows: conv[:,:,0:3].

#include "native/rank.hpp"

#pragma GCC optimize("O0")  // nothing here takes time, and compiling it would

static Frame make(Rank& rank) {
    // Every tensor, or piece of one, that this rank holds.
    Buffer& b0 = rank.buffer("data", {1, 3, 8, 8}, "float32");
    Buffer& b1 = rank.buffer("out[:,:,3:6]", {1, 2, 3, 6}, "float32");
    Buffer& b2 = rank.buffer("out", {1, 2, 6, 6}, "float32");
    rank.input(b0);
    rank.output(b2);

    Work& s0 = rank.segment(
        "rank00/segment000.onnx",
        /* inputs */ {&b0, &b1},
        /* outputs */ {&b2});

    Receive& r0 = rank.receive(b1, /* source */ 1, /* tag */ 0);
    Send& m0 = rank.send(b0, {{0, 1}, {0, 3}, {3, 8}, {0, 8}}, /* dest */ 1, /* tag */ 0);

    return [&] {  // all that it refers to lives as long as the rank
        r0.post();
        m0.start();  // data to rank 1
        r0.wait();  // out[:,:,3:6] from rank 1
        s0.run();  // conv[:,:,0:3]
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
