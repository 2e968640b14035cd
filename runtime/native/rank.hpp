// One rank of a bundle: what the lines of a generated program mean.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "communicator.hpp"
#include "memory.hpp"
#include "note.hpp"
#include "ort.hpp"
#include "pages.hpp"

class Rank;
using Frame = std::function<void()>;

// What a generated program says of shapes, boxes and buffers: lists that cost its compiler nothing, as a vector would.
using Sizes = std::initializer_list<int64_t>;
using Intervals = std::initializer_list<Interval>;
using Buffers = std::initializer_list<Buffer*>;

// A generated program: where it runs, as the plan says; and what it makes once, to return what to do for a frame.
struct Program {
    int rank;
    const char* device;
    int threads;
    const char* provider;
    bool arena;
    Frame (*make)(Rank&);
};

const std::string INPUT = "input", COMPUTE = "compute", WAIT = "wait", SEND = "send";  // kinds of spans

// What a span is about, if it is about one message.
struct Message {
    int peer = -1, tag = 0;
    size_t bytes = 0;
};

constexpr double UNKNOWN = -1;

// A span of a frame; seconds of this rank's clock. busy_s: as in trace.py of the Python programs.
struct Record {
    std::string kind, name;
    double start_s, stop_s, busy_s;
    Message message;
};

// A segment, once a frame.
class Work {
public:
    Work(Rank& rank, std::string file, ort::Segment segment);
    void run();  // compute, while messages that have been started move on

private:
    Rank& rank_;
    std::string file_;
    ort::Segment segment_;
};

// A message to this rank, once a frame.
class Receive {
public:
    Receive(Rank& rank, Buffer& buffer, int source, int tag);
    void post();  // make the buffer ready, before the message comes; once a frame, the rest is ignored
    void wait();  // until the buffer is filled
    const Buffer& buffer;

private:
    Rank& rank_;
    int source_, tag_;
    bool posted_ = false;
    double waited_s_ = 0;
    Request request_;
};

// A message from this rank, once a frame. A box that is not in one piece is copied into one first.
class Send {
public:
    Send(Rank& rank, Buffer& buffer, const Box& box, int dest, int tag);
    void start();  // hand the message over; it leaves while the program goes on
    const Buffer& buffer;

private:
    Rank& rank_;
    Pieces pieces_;
    char* packed_;  // null: it is in one piece
    int dest_, tag_;
    Request request_;
};

// What all sets of buffers of a rank have in common.
struct Shared {
    Note& activity;      // what the rank is doing, for a person
    std::string folder;  // of the bundle
    ort::Settings settings;
    std::map<std::string, ort::Session> sessions;
    Footprint footprint;
    Pages pages;  // what buffers are in
};

// The buffers, segments and messages of one rank. A program makes them once; its frame only uses them.
class Rank {
public:
    Rank(Communicator& communicator, Shared& shared) : communicator(communicator), shared(shared) {}
    Buffer& buffer(const char* name, Sizes shape, const char* dtype);
    char* memory(size_t size);  // some of the memory of buffers, zeroed
    Buffer& part(const char* name, Buffer& whole, Intervals box);  // of another buffer, in one piece of memory
    void input(Buffer& buffer) { inputs.push_back(&buffer); }    // of the CNN: filled before every frame
    void output(Buffer& buffer) { outputs.push_back(&buffer); }  // of the CNN: kept after every frame
    Work& segment(const char* file, Buffers inputs, Buffers outputs);
    Receive& receive(Buffer& buffer, int source, int tag);
    Send& send(Buffer& buffer, Intervals box, int dest, int tag);
    void post();    // the receives of a coming frame, although messages of an earlier one may not have left yet
    void finish();  // a frame: wait until all that was sent has left, so that the buffers may change
    void wait();    // until all that is pending is done
    void doing(const std::string& kind, const std::string& name, const std::function<void()>& action,
               Message message = {});  // record a span

    Communicator& communicator;
    Shared& shared;
    std::vector<Buffer*> inputs, outputs;
    std::vector<Request> pending;
    std::vector<Record> records;

private:
    const ort::Session& open(const std::string& file);
    std::deque<Buffer> buffers_;  // whose elements stay where they are
    std::deque<Work> works_;
    std::deque<Receive> receives_;
    std::deque<Send> sends_;
};
