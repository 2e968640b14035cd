#include "report.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "frames.hpp"
#include "memory.hpp"

// A span of the trace: a record by the clock of rank 0.
struct Span {
    int rank;
    Record record;
};

// What a rank has handed in, on rank 0. usage: fields of a JSON object, without its braces.
struct Handed {
    std::string usage;
    std::vector<std::vector<Record>> frames;
    std::vector<Kept> outputs;
};

static std::string quoted(const std::string& text) {
    std::string found = "\"";
    for (char c : text) {
        char code[8];
        if (static_cast<unsigned char>(c) < 32) std::snprintf(code, sizeof code, "\\u%04x", c), found += code;
        else found += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
    }
    return found + "\"";
}

static std::string seconds(double time_s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9f", time_s);
    return text;
}

static std::string joined(const std::vector<std::string>& texts) {
    std::string found;
    for (const std::string& text : texts) found += (found.empty() ? "" : ", ") + text;
    return found;
}

// What a measurement depends on: versions, cores that this process may use, how they are clocked.
static std::string conditions() {
    utsname machine;
    uname(&machine);
    std::string found = "{\"compiler\": " + quoted(__VERSION__) + ", \"machine\": " + quoted(machine.machine);
    if (!ort::version().empty()) found += ", \"onnxruntime\": " + quoted(ort::version());
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        std::vector<std::string> list;
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &cores)) list.push_back(std::to_string(core));
        std::string text = joined(list);
        text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
        found += ", \"cores\": " + quoted(text);
    }
    std::string governor;
    if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> governor)
        found += ", \"governor\": " + quoted(governor);
    return found + "}";
}

static std::string memory(const Footprint& parts) {
    return "{\"base_bytes\": " + std::to_string(parts.base) + ", \"buffers_bytes\": " + std::to_string(parts.buffers) +
           ", \"segments_bytes\": " + std::to_string(parts.segments) +
           ", \"input_bytes\": " + std::to_string(parts.input) +
           ", \"frames_bytes\": " + std::to_string(parts.frames) +
           ", \"opening_bytes\": " + std::to_string(parts.opening) + "}";
}

static std::string usage(const Program& program, const Rank& rank, const Account& account) {
    const ort::Settings& settings = rank.shared.settings;
    auto truth = [](bool value) { return value ? "true" : "false"; };
    return "\"rank\": " + std::to_string(program.rank) + ", \"device\": " + quoted(program.device) +
           ", \"provider\": " + quoted(settings.provider) + ", \"threads\": " + std::to_string(settings.threads) +
           ", \"peak_bytes\": " + std::to_string(peak_bytes()) + ", \"processor_s\": " + seconds(account.processor_s) +
           ", \"memory\": " + memory(rank.shared.footprint) + ", \"reads\": " + truth(!rank.inputs.empty()) +
           ", \"writes\": " + truth(!rank.outputs.empty()) + ", \"conditions\": " + conditions() +
           ", \"stolen\": " + (account.stolen ? seconds(*account.stolen) : "null");
}

// Texts one after the other, each with its length, and back; numbers as they lie in memory.
static void pack(std::string& all, const std::string& text) {
    const uint64_t length = text.size();
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
}

template <typename Number>
static void pack_number(std::string& all, Number number) {
    all.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
static Number unpack_number(const std::string& all, size_t& at) {
    Number number;
    std::memcpy(&number, &all[at], sizeof number);
    at += sizeof number;
    return number;
}

static std::string unpack(const std::string& all, size_t& at) {
    const uint64_t length = unpack_number<uint64_t>(all, at);
    at += length;
    return all.substr(at - length, length);
}

static void pack_record(std::string& all, const Record& record) {
    pack(all, record.kind), pack(all, record.name);
    pack_number(all, record.start_s), pack_number(all, record.stop_s), pack_number(all, record.busy_s);
    pack_number(all, record.message);
}

static Record unpack_record(const std::string& all, size_t& at) {
    Record found;
    found.kind = unpack(all, at), found.name = unpack(all, at);
    found.start_s = unpack_number<double>(all, at), found.stop_s = unpack_number<double>(all, at);
    found.busy_s = unpack_number<double>(all, at), found.message = unpack_number<Message>(all, at);
    return found;
}

static std::string packed(const Program& program, const Rank& rank, const Account& account) {
    std::string all;
    pack(all, usage(program, rank, account));
    for (const auto& records : account.frames) {
        pack_number(all, records.size());
        for (const Record& record : records) pack_record(all, record);
    }
    for (size_t i = 0; i < rank.outputs.size(); ++i) {
        const Shape& shape = rank.outputs[i]->shape;
        pack(all, rank.outputs[i]->name), pack(all, rank.outputs[i]->type->name), pack(all, account.outputs[i]);
        pack(all, std::string(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t)));
    }
    return all;
}

static Handed unpacked(const std::string& all, long frames) {
    size_t at = 0;
    Handed found{unpack(all, at), {}, {}};
    for (long i = 0; i < frames; ++i) {
        found.frames.emplace_back();
        for (size_t left = unpack_number<size_t>(all, at); left > 0; --left)
            found.frames.back().push_back(unpack_record(all, at));
    }
    while (at < all.size()) {
        const std::string name = unpack(all, at);
        const Type& type = type_named(unpack(all, at));
        std::string bytes = unpack(all, at);
        const std::string sizes = unpack(all, at);
        Shape shape{frames};
        shape.resize(1 + sizes.size() / sizeof(int64_t));
        std::memcpy(shape.data() + 1, sizes.data(), sizes.size());
        found.outputs.push_back({name, &type, shape, std::move(bytes)});
    }
    return found;
}

// The ranks' spans of one frame, by the clock of rank 0.
static std::vector<Span> side_by_side(const std::vector<Handed>& ranks, size_t frame, const std::vector<Clock>& clocks) {
    std::vector<Span> found;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
        for (Record record : ranks[rank].frames[frame]) {
            record.start_s = clocks[rank].aligned(record.start_s);
            record.stop_s = clocks[rank].aligned(record.stop_s);
            found.push_back({int(rank), record});
        }
    return found;
}

// When the first input was there; of a CNN without one, when the first rank began.
static double begin_s(const std::vector<Span>& frame) {
    constexpr double NEVER = std::numeric_limits<double>::infinity();
    double input = NEVER, any = NEVER;
    for (const Span& span : frame) {
        any = std::min(any, span.record.start_s);
        if (span.record.kind == INPUT) input = std::min(input, span.record.stop_s);
    }
    return input < NEVER ? input : any < NEVER ? any : 0;
}

static std::string json(const Span& span, double since_s) {
    const auto& [kind, name, start_s, stop_s, busy_s, message] = span.record;
    std::vector<std::string> fields{std::to_string(span.rank), quoted(kind), quoted(name), seconds(start_s - since_s),
                                    seconds(stop_s - since_s)};
    if (message.peer >= 0)
        for (size_t number : {size_t(message.peer), size_t(message.tag), message.bytes})
            fields.push_back(std::to_string(number));
    if (busy_s != UNKNOWN)
        for (const std::string& field : {std::string("null"), std::string("0"), std::string("0"), seconds(busy_s)})
            fields.push_back(field);
    return "[" + joined(fields) + "]";
}

// In the form of trace.py of the Python programs.
static std::string report(const std::vector<Handed>& ranks, const std::vector<Clock>& clocks, bool barrier) {
    std::vector<std::string> usages, frames;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
        usages.push_back("{" + ranks[rank].usage + ", \"clock_offset_s\": " + seconds(clocks[rank].offset_s()) +
                         ", \"clock_uncertainty_s\": " + seconds(clocks[rank].uncertainty_s()) + "}");
    double since_s = 0;
    for (size_t i = 0; i < ranks[0].frames.size(); ++i) {
        const std::vector<Span> frame = side_by_side(ranks, i, clocks);
        if (barrier || i == 0) since_s = begin_s(frame);
        std::vector<std::string> texts;
        for (const Span& span : frame) texts.push_back(json(span, since_s));
        frames.push_back("[" + joined(texts) + "]");
    }
    return "{\"format\": \"cleave-trace\", \"version\": 2, \"source\": \"measured\", \"barrier\": " +
           std::string(barrier ? "true" : "false") + ", \"ranks\": [" + joined(usages) + "], \"frames\": [" +
           joined(frames) + "]}\n";
}

std::string hand_in(const Program& program, Rank& rank, const Options& options, const Account& account,
                    const std::map<int, Clock>& clocks) {
    rank.shared.activity = "gathering the results";
    std::vector<Handed> ranks;
    for (const std::string& all : rank.communicator.gather(packed(program, rank, account)))
        ranks.push_back(unpacked(all, options.frames));
    if (rank.communicator.rank != 0) return "";
    std::vector<Clock> by_rank;
    for (int first : rank.communicator.hosts) by_rank.push_back(clocks.count(first) ? clocks.at(first) : Clock());
    std::vector<Kept> outputs;
    for (Handed& handed : ranks)
        for (Kept& kept : handed.outputs) outputs.push_back(std::move(kept));
    if (!options.output.empty()) save(options.output, npz(outputs));
    return options.report.empty() ? "" : report(ranks, by_rank, options.barrier);
}
