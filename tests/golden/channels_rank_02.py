"Rank 2 of 3 on edge02_cpu01, for tiny: conv1[:,4:8], relu/1[:,4:8]."

from runtime.program import main
from runtime.rank import Place

PLACE = Place(
    __file__,
    rank=2,
    ranks=3,
    device="edge02_cpu01",
    threads=1,
    provider="CPUExecutionProvider",
    arena=True,
)


def program(rank):
    # Every tensor, or piece of one, that this rank holds.
    b0 = rank.buffer('in/put.0 "x" [1] \u03b1', (1, 3, 8, 8), "float32")
    b1 = rank.buffer("relu/1[:,4:8]", (1, 4, 6, 6), "float32")

    s0 = rank.segment(
        "rank02/segment000.onnx",
        inputs={'in/put.0 "x" [1] \u03b1': b0},
        outputs={"relu/1[:,4:8]": b1},
    )

    r0 = rank.receive(b0, source=0, tag=1)
    m0 = rank.send(b1[0:1, 1:4], dest=1, tag=2)

    def frame():
        r0.post()
        r0.wait()  # in/put.0 "x" [1] \u03b1 from rank 0
        s0.run()  # conv1[:,4:8], relu/1[:,4:8]
        m0.start()  # relu/1[:,4:8] to rank 1

    return frame


if __name__ == "__main__":
    main(program, PLACE)
