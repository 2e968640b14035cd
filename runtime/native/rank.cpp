#include "rank.hpp"

#include <algorithm>
#include <cstring>

Work::Work(Rank& rank, std::string file, ort::Segment segment)
    : rank_(rank), file_(std::move(file)), segment_(std::move(segment)) {}

void Work::run() {
    rank_.doing(COMPUTE, file_, [this] {
        rank_.communicator.progress(true);
        segment_.run();
        rank_.communicator.progress(false);
    });
}

Receive::Receive(Rank& rank, Buffer& buffer, int source, int tag)
    : buffer(buffer),
      rank_(rank),
      source_(source),
      tag_(tag),
      request_(rank.communicator.receive(buffer.data, buffer.bytes(), source, tag)) {}

void Receive::post() {
    if (!posted_) request_.start();
    posted_ = true;
}

void Receive::wait() {
    post();
    auto arrive = [this] { waited_s_ = request_.wait(waited_s_); };
    rank_.doing(WAIT, buffer.name, arrive, {source_, tag_, buffer.bytes()});
    posted_ = false;
}

Send::Send(Rank& rank, Buffer& buffer, const Box& box, int dest, int tag)
    : buffer(buffer),
      rank_(rank),
      pieces_(pieces(buffer, box)),
      packed_(pieces_.offsets.size() > 1 ? rank.memory(pieces_.length * pieces_.offsets.size()) : nullptr),
      dest_(dest),
      tag_(tag),
      request_(rank.communicator.send(packed_ ? packed_ : buffer.data + pieces_.offsets[0],
                                      pieces_.length * pieces_.offsets.size(), dest, tag)) {}

void Send::start() {
    const size_t length = pieces_.length, count = pieces_.offsets.size();
    auto leave = [&] {
        for (size_t i = 0; packed_ && i < count; ++i)
            std::memcpy(packed_ + i * length, buffer.data + pieces_.offsets[i], length);
        request_.start();
        rank_.pending.push_back(request_);
    };
    rank_.doing(SEND, buffer.name, leave, {dest_, tag_, length * count});
}

Buffer& Rank::buffer(const char* name, Sizes shape, const char* dtype) {
    buffers_.push_back({name, shape, &type_named(dtype), nullptr});
    Buffer& made = buffers_.back();
    made.data = memory(made.bytes());
    return made;
}

char* Rank::memory(size_t size) {
    char* taken = shared.pages.take(size);
    std::memset(taken, 0, size);  // fetches the memory before the first frame
    shared.footprint.buffers += long(Pages::room_of(size));
    return taken;
}

Buffer& Rank::part(const char* name, Buffer& whole, Intervals box) {
    Shape shape;
    for (const auto& [start, stop] : box) shape.push_back(stop - start);
    buffers_.push_back({name, shape, whole.type, whole.data + pieces(whole, box).offsets[0]});
    return buffers_.back();
}

Work& Rank::segment(const char* file, Buffers inputs, Buffers outputs) {
    shared.activity = std::string("opening ") + file;
    works_.emplace_back(*this, file, ort::Segment(open(file), inputs, outputs));
    return works_.back();
}

const ort::Session& Rank::open(const std::string& file) {
    auto found = shared.sessions.find(file);
    if (found != shared.sessions.end()) return found->second;
    Footprint::growing(shared.footprint.base, [&] { ort::load(shared.settings); });
    ort::Session session;
    Footprint::growing(shared.footprint.segments,
                       [&] { session = ort::open(shared.folder + "/" + file, shared.settings); });
    shared.footprint.opened();
    return shared.sessions.emplace(file, session).first->second;
}

Receive& Rank::receive(Buffer& buffer, int source, int tag) {
    receives_.emplace_back(*this, buffer, source, tag);
    return receives_.back();
}

Send& Rank::send(Buffer& buffer, Intervals box, int dest, int tag) {
    sends_.emplace_back(*this, buffer, box, dest, tag);
    return sends_.back();
}

void Rank::post() {
    for (Receive& receive : receives_) {
        const char *first = receive.buffer.data, *last = first + receive.buffer.bytes();
        auto leaves = [&](const Send& send) {
            return send.buffer.data < last && first < send.buffer.data + send.buffer.bytes();
        };
        if (std::none_of(sends_.begin(), sends_.end(), leaves)) receive.post();
    }
}

void Rank::finish() {
    doing(SEND, "the rest", [this] { wait(); });
}

void Rank::wait() {
    for (Request& request : pending) request.wait();
    pending.clear();
}

void Rank::doing(const std::string& kind, const std::string& name, const std::function<void()>& action,
                 Message message) {
    shared.activity = kind + " " + name;
    const bool timed = kind == COMPUTE && shared.settings.threads == 1;
    const double begun = timed ? thread_s() : 0, start = now_s();
    action();
    const double busy = timed ? thread_s() - begun : UNKNOWN;  // before the span ends, see rank.py
    records.push_back({kind, name, start, now_s(), busy, message});
}
