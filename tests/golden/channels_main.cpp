// Compile on the device, in this folder:
//     mpicxx -std=c++17 -O2 -o ranks *.cpp native/*.cpp -ldl -pthread
// and start on every rank (CLEAVE_ONNXRUNTIME=FILE says where libonnxruntime.so is, if it is not installed):
//     mpirun -n 3 ./ranks --frames 20 --barrier --report report.json

#include "native/program.hpp"

extern const Program rank_00;
extern const Program rank_01;
extern const Program rank_02;

int main(int count, char** words) {
    return run(
        {
            rank_00,
            rank_01,
            rank_02,
        },
        count, words);
}
