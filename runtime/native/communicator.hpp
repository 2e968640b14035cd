// Messages between ranks over MPI, and how to wait without taking a core from a neighbour.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

constexpr char PREFIX[] = "cleave: ";  // before what a rank says to a person, which launch.py looks for

double now_s();     // of this rank's clock
double thread_s();  // processor time of this thread

// A message that is made ready once, and goes its way once a frame.
class Request {
public:
    Request(MPI_Request request, size_t expected, int* coming = nullptr)
        : request_(request), expected_(expected), coming_(coming) {}
    void start();
    bool test();  // whether it has arrived, or has left, or is not on its way
    // Until it has arrived, or has left: poll briefly, then sleep, and the shorter the nearer that is thought to be.
    // last_s: what this has returned of the last such wait; returns the seconds until it was last not so.
    double wait(double last_s = 0);

private:
    MPI_Request request_;
    size_t expected_;  // bytes of a message that is received; 0: it is sent
    int* coming_;      // how many large messages are being received, if it is one
};

// All ranks of the job, from MPI_Init to MPI_Finalize.
class Communicator {
public:
    Communicator();
    ~Communicator();
    Request receive(char* data, size_t bytes, int source, int tag);
    Request send(const char* data, size_t bytes, int dest, int tag);
    Request arrive();  // say that this rank is here; done when every rank has said so
    void barrier() { arrive().wait(); }
    std::vector<std::string> gather(const std::string& bytes);  // of all ranks in order, on rank 0; empty elsewhere
    void progress(bool active);  // whether large messages have to move on although this thread is about to compute
    [[noreturn]] void abort(const std::string& message);  // end every rank; one line that says why

    int rank, size;
    std::vector<int> hosts;  // for each rank the first rank on its host

private:
    std::vector<int> first_of_each_host() const;
    bool helped(int other, size_t bytes) const;
    void look(bool active);
    void look_after_messages();
    int coming_ = 0;
    std::vector<Request> leaving_;  // large messages of this rank
    std::thread helper_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool computing_ = false, begun_ = false, ending_ = false;  // begun: computing, anew
};
