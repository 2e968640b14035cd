"Rank 0 of 2 on edge00_cpu01, for rows: conv[:,:,0:3]."

from runtime.program import main
from runtime.rank import Place

PLACE = Place(
    __file__,
    rank=0,
    ranks=2,
    device="edge00_cpu01",
    threads=1,
    provider="CPUExecutionProvider",
    arena=True,
)


def program(rank):
    # Every tensor, or piece of one, that this rank holds.
    b0 = rank.buffer("data", (1, 3, 8, 8), "float32")
    b1 = rank.buffer("out[:,:,3:6]", (1, 2, 3, 6), "float32")
    b2 = rank.buffer("out", (1, 2, 6, 6), "float32")
    rank.input("data", b0)
    rank.output("out", b2)

    s0 = rank.segment(
        "rank00/segment000.onnx",
        inputs={"data": b0, "out[:,:,3:6]": b1},
        outputs={"out": b2},
    )

    r0 = rank.receive(b1, source=1, tag=0)
    m0 = rank.send(b0[0:1, 0:3, 3:8], dest=1, tag=0)

    def frame():
        r0.post()
        m0.start()  # data to rank 1
        r0.wait()  # out[:,:,3:6] from rank 1
        s0.run()  # conv[:,:,0:3]

    return frame


if __name__ == "__main__":
    main(program, PLACE)
