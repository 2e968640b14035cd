"Rank 1 of 3 on edge01_cpu01, for tiny: conv1[:,0:5], relu/1[:,0:5]; conv2[:,0:4]."

from runtime.program import main
from runtime.rank import Place

PLACE = Place(
    __file__,
    rank=1,
    ranks=3,
    device="edge01_cpu01",
    threads=1,
    provider="CPUExecutionProvider",
    arena=True,
)


def program(rank):
    # Every tensor, or piece of one, that this rank holds.
    b0 = rank.buffer('in/put.0 "x" [1] \u03b1', (1, 3, 8, 8), "float32")
    b1 = rank.buffer("relu/1[:,0:5]", (1, 5, 6, 6), "float32")
    b2 = rank.buffer("relu/1[:,5:8]", (1, 3, 6, 6), "float32")
    b3 = rank.buffer("out.0", (1, 4, 6, 6), "float32")
    rank.output("out.0", b3)

    s0 = rank.segment(
        "rank01/segment000.onnx",
        inputs={'in/put.0 "x" [1] \u03b1': b0},
        outputs={"relu/1[:,0:5]": b1},
    )
    s1 = rank.segment(
        "rank01/segment001.onnx",
        inputs={"relu/1[:,0:5]": b1, "relu/1[:,5:8]": b2},
        outputs={"out.0": b3},
    )

    r0 = rank.receive(b0, source=0, tag=0)
    r1 = rank.receive(b2, source=2, tag=2)

    def frame():
        r0.post()
        r1.post()
        r0.wait()  # in/put.0 "x" [1] \u03b1 from rank 0
        s0.run()  # conv1[:,0:5], relu/1[:,0:5]
        r1.wait()  # relu/1[:,5:8] from rank 2
        s1.run()  # conv2[:,0:4]

    return frame


if __name__ == "__main__":
    main(program, PLACE)
