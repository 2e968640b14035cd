#include "ort.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace ort {

using Handle = void*;
using Status = void*;

// Where a function stands in the table. 12 is the first version that has all of these at these places.
constexpr uint32_t TABLE_VERSION = 12;
enum Entry {
    GetErrorMessage = 2,
    CreateSession = 7,
    Run = 9,
    CreateSessionOptions = 10,
    DisableMemPattern = 17,
    DisableCpuMemArena = 19,
    SetSessionLogSeverityLevel = 22,
    SessionGetInputCount = 30,
    SessionGetOutputCount = 31,
    SessionGetInputTypeInfo = 33,
    SessionGetOutputTypeInfo = 34,
    SessionGetInputName = 36,
    SessionGetOutputName = 37,
    CreateTensorWithDataAsOrtValue = 49,
    CastTypeInfoToTensorInfo = 55,
    GetTensorElementType = 60,
    CreateCpuMemoryInfo = 69,
    AllocatorFree = 76,
    GetAllocatorWithDefaultOptions = 78,
    ReleaseTypeInfo = 98,
    CreateEnvWithGlobalThreadPools = 119,
    DisablePerSessionThreads = 120,
    CreateThreadingOptions = 121,
    AddSessionConfigEntry = 130,
    CreateAndRegisterAllocator = 144,
    SetGlobalIntraOpNumThreads = 147,
};

constexpr int ERRORS = 3;  // least severity that is logged
constexpr int ARENA = 1, DEFAULT_MEMORY = 0;

static void** table = nullptr;
static Handle environment = nullptr, options = nullptr, allocator = nullptr, memory = nullptr;
static std::string library_version;

// Call an entry of the table; what it says when it fails becomes an exception.
template <typename... Arguments>
static void call(Entry entry, Arguments... arguments) {
    if (Status status = reinterpret_cast<Status (*)(Arguments...)>(table[entry])(arguments...))
        throw std::runtime_error(reinterpret_cast<const char* (*)(Status)>(table[GetErrorMessage])(status));
}

static void load_library() {
    const char* named = std::getenv("CLEAVE_ONNXRUNTIME");
    void* library = nullptr;
    for (const char* file : {named ? named : "libonnxruntime.so.1", named ? named : "libonnxruntime.so"})
        if (!library) library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        throw std::runtime_error(std::string("no ONNX Runtime (") + dlerror() +
                                 "): say where libonnxruntime.so is with CLEAVE_ONNXRUNTIME=FILE");
    void* symbol = dlsym(library, "OrtGetApiBase");
    if (!symbol) throw std::runtime_error("the library of ONNX Runtime has no C interface");
    void** base = reinterpret_cast<void** (*)()>(symbol)();
    library_version = reinterpret_cast<const char* (*)()>(base[1])();
    table = reinterpret_cast<void** (*)(uint32_t)>(base[0])(TABLE_VERSION);
    if (!table) throw std::runtime_error("ONNX Runtime " + library_version + " is too old, 1.12 or later is needed");
}

// What all sessions share: threads, so that a rank has no more of them than cores; and the arena.
static void start(const Settings& settings) {
    load_library();
    Handle threading;
    call(CreateThreadingOptions, &threading);
    call(SetGlobalIntraOpNumThreads, threading, settings.threads);
    call(CreateEnvWithGlobalThreadPools, ERRORS, "cleave", static_cast<const void*>(threading), &environment);
    call(CreateCpuMemoryInfo, ARENA, DEFAULT_MEMORY, &memory);
    call(GetAllocatorWithDefaultOptions, &allocator);
    call(CreateSessionOptions, &options);
    call(SetSessionLogSeverityLevel, options, ERRORS);
    call(DisablePerSessionThreads, options);
    call(DisableMemPattern, options);
    auto set = [](const char* key, const char* value) { call(AddSessionConfigEntry, options, key, value); };
    set("session.qdqisint8allowed", "1");     // KERNELS of runtime/segment.py
    set("session.qdq_matmulnbits_accuracy_level", "1");
    set("session.force_spinning_stop", "1");  // threads spin while a segment runs, and rest while the rank waits
    set("session.disable_prepacking", "1");   // weights stay where they are: mapped from their file, no copy of them
    if (settings.arena) {
        const void *usual_size = nullptr, *cpu = memory;
        call(CreateAndRegisterAllocator, environment, cpu, usual_size);
        set("session.use_env_allocators", "1");
    } else {
        call(DisableCpuMemArena, options);
    }
}

static std::vector<Value> values(Handle session, Entry count, Entry name, Entry info) {
    size_t number;
    call(count, session, &number);
    std::vector<Value> found;
    for (size_t i = 0; i < number; ++i) {
        char* text;
        call(name, session, i, allocator, &text);
        Handle type_info;
        const void* tensor_info;
        call(info, session, i, &type_info);
        call(CastTypeInfoToTensorInfo, type_info, &tensor_info);
        int type = 0;
        if (tensor_info) call(GetTensorElementType, tensor_info, &type);
        found.push_back({text, type});
        call(AllocatorFree, allocator, static_cast<void*>(text));
        reinterpret_cast<void (*)(Handle)>(table[ReleaseTypeInfo])(type_info);
    }
    return found;
}

void load(const Settings& settings) {
    if (settings.provider != "CPUExecutionProvider")
        throw std::runtime_error("no " + settings.provider + " in a C++ program, which computes on the processor");
    if (!environment) start(settings);
}

Session open(const std::string& path, const Settings& settings) {
    Session session;
    call(CreateSession, environment, path.c_str(), options, &session.handle);
    session.inputs = values(session.handle, SessionGetInputCount, SessionGetInputName, SessionGetInputTypeInfo);
    session.outputs = values(session.handle, SessionGetOutputCount, SessionGetOutputName, SessionGetOutputTypeInfo);
    return session;
}

// Names and types, before a wrong one becomes garbage; shapes are checked by ONNX Runtime when it runs.
static void check(const std::string& kind, const std::vector<Buffer*>& buffers, const std::vector<Value>& declared) {
    for (const Buffer* buffer : buffers) {
        auto same = [&](const Value& value) { return value.name == buffer->name; };
        auto found = std::find_if(declared.begin(), declared.end(), same);
        if (found == declared.end()) throw std::runtime_error("has no " + kind + " '" + buffer->name + "'");
        if (found->type != buffer->type->onnx) {
            const Type* type = type_numbered(found->type);
            throw std::runtime_error(kind + " '" + buffer->name + "' is " + (type ? type->name : "something else") +
                                     ", the plan says " + buffer->type->name);
        }
    }
    for (const Value& value : declared) {
        auto same = [&](const Buffer* buffer) { return value.name == buffer->name; };
        if (kind == "input" && std::none_of(buffers.begin(), buffers.end(), same))
            throw std::runtime_error("nothing feeds input '" + value.name + "'");
    }
}

static Handle over(const Buffer& buffer) {
    Handle value;
    const void* cpu = memory;
    void* data = buffer.data;
    const int64_t* shape = buffer.shape.data();
    const size_t bytes = buffer.bytes(), rank = buffer.shape.size();
    call(CreateTensorWithDataAsOrtValue, cpu, data, bytes, shape, rank, buffer.type->onnx, &value);
    return value;
}

Segment::Segment(const Session& session, const std::vector<Buffer*>& inputs, const std::vector<Buffer*>& outputs)
    : session_(session.handle) {
    check("input", inputs, session.inputs);
    check("output", outputs, session.outputs);
    for (const Buffer* buffer : inputs) input_names_.push_back(buffer->name.c_str()), inputs_.push_back(over(*buffer));
    for (const Buffer* buffer : outputs)
        output_names_.push_back(buffer->name.c_str()), outputs_.push_back(over(*buffer));
}

void Segment::run() {
    call(Run, session_, static_cast<const void*>(nullptr), input_names_.data(), inputs_.data(), inputs_.size(),
         output_names_.data(), output_names_.size(), outputs_.data());
}

std::string version() { return library_version; }

}  // namespace ort
