// ONNX Runtime through its C interface: a table of functions that keeps its order from version to version.
//
// The library is opened when the first segment is: it comes without headers in the wheel that Python uses, and a rank
// that only holds data needs none. CLEAVE_ONNXRUNTIME says where it is, otherwise the system's search path does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "buffer.hpp"

namespace ort {

struct Value {  // an input or an output as the model declares it
    std::string name;
    int type;  // its number in ONNX
};

// A segment that has been opened.
struct Session {
    void* handle;
    std::vector<Value> inputs, outputs;
};

// How all sessions of a rank compute. arena: keep the memory of a frame for the next one, one arena for all of them.
struct Settings {
    std::string provider;
    int threads;
    bool arena;
};

void load(const Settings& settings);  // the library, once; before the first session
Session open(const std::string& path, const Settings& settings);

// A session with the buffers it works on: nothing is copied or allocated for them in a frame.
class Segment {
public:
    Segment(const Session& session, const std::vector<Buffer*>& inputs, const std::vector<Buffer*>& outputs);
    void run();

private:
    void* session_;
    std::vector<const char*> input_names_, output_names_;
    std::vector<void*> inputs_, outputs_;
};

std::string version();  // of the library; empty while it is not open

}  // namespace ort
