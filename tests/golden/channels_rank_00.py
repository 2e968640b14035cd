"Rank 0 of 3 on edge00_cpu01, for tiny: holds data, computes nothing."

from runtime.program import main
from runtime.rank import Place

PLACE = Place(
    __file__,
    rank=0,
    ranks=3,
    device="edge00_cpu01",
    threads=1,
    provider="CPUExecutionProvider",
    arena=True,
)


def program(rank):
    # Every tensor, or piece of one, that this rank holds.
    b0 = rank.buffer('in/put.0 "x" [1] \u03b1', (1, 3, 8, 8), "float32")
    rank.input('in/put.0 "x" [1] \u03b1', b0)

    m0 = rank.send(b0, dest=1, tag=0)
    m1 = rank.send(b0, dest=2, tag=1)

    def frame():
        m0.start()  # in/put.0 "x" [1] \u03b1 to rank 1
        m1.start()  # in/put.0 "x" [1] \u03b1 to rank 2

    return frame


if __name__ == "__main__":
    main(program, PLACE)
