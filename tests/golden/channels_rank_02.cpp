// Rank 2 of 3 on edge02_cpu01, for tiny: conv1[:,4:8], relu/1[:,4:8].

#include "native/rank.hpp"

#pragma GCC optimize("O0")  // nothing here takes time, and compiling it would

static Frame make(Rank& rank) {
    // Every tensor, or piece of one, that this rank holds.
    Buffer& b0 = rank.buffer("in/put.0 \042x\042 [1] \316\261", {1, 3, 8, 8}, "float32");
    Buffer& b1 = rank.buffer("relu/1[:,4:8]", {1, 4, 6, 6}, "float32");

    Work& s0 = rank.segment(
        "rank02/segment000.onnx",
        /* inputs */ {&b0},
        /* outputs */ {&b1});

    Receive& r0 = rank.receive(b0, /* source */ 0, /* tag */ 1);
    Send& m0 = rank.send(b1, {{0, 1}, {1, 4}, {0, 6}, {0, 6}}, /* dest */ 1, /* tag */ 2);

    return [&] {  // all that it refers to lives as long as the rank
        r0.post();
        r0.wait();  // in/put.0 "x" [1] \u03b1 from rank 0
        s0.run();  // conv1[:,4:8], relu/1[:,4:8]
        m0.start();  // relu/1[:,4:8] to rank 1
    };
}

extern const Program rank_02;
const Program rank_02 = {
    /* rank */ 2,
    /* device */ "edge02_cpu01",
    /* threads */ 1,
    /* provider */ "CPUExecutionProvider",
    /* arena */ true,
    make,
};
