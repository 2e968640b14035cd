// Rank 1 of 3 on edge01_cpu01, for tiny: conv1[:,0:5], relu/1[:,0:5]; conv2[:,0:4].

#include "native/rank.hpp"

#pragma GCC optimize("O0")  // nothing here takes time, and compiling it would

static Frame make(Rank& rank) {
    // Every tensor, or piece of one, that this rank holds.
    Buffer& b0 = rank.buffer("in/put.0 \042x\042 [1] \316\261", {1, 3, 8, 8}, "float32");
    Buffer& b1 = rank.buffer("relu/1[:,0:5]", {1, 5, 6, 6}, "float32");
    Buffer& b2 = rank.buffer("relu/1[:,5:8]", {1, 3, 6, 6}, "float32");
    Buffer& b3 = rank.buffer("out.0", {1, 4, 6, 6}, "float32");
    rank.output(b3);

    Work& s0 = rank.segment(
        "rank01/segment000.onnx",
        /* inputs */ {&b0},
        /* outputs */ {&b1});
    Work& s1 = rank.segment(
        "rank01/segment001.onnx",
        /* inputs */ {&b1, &b2},
        /* outputs */ {&b3});

    Receive& r0 = rank.receive(b0, /* source */ 0, /* tag */ 0);
    Receive& r1 = rank.receive(b2, /* source */ 2, /* tag */ 2);

    return [&] {  // all that it refers to lives as long as the rank
        r0.post();
        r1.post();
        r0.wait();  // in/put.0 "x" [1] \u03b1 from rank 0
        s0.run();  // conv1[:,0:5], relu/1[:,0:5]
        r1.wait();  // relu/1[:,5:8] from rank 2
        s1.run();  // conv2[:,0:4]
    };
}

extern const Program rank_01;
const Program rank_01 = {
    /* rank */ 1,
    /* device */ "edge01_cpu01",
    /* threads */ 1,
    /* provider */ "CPUExecutionProvider",
    /* arena */ true,
    make,
};
