// Frame after frame: fill the inputs, start together, run, keep the outputs, and hand all of it in at the end.
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>

#include "frames.hpp"
#include "program.hpp"

// Spans of one frame as JSON, and when the last of them was over.
struct Spans {
    std::string json;
    double end_s = 0;
};

// A set of buffers, and what to do for a frame in it. A stream has two, used in turn.
struct Lane {
    Rank* rank;
    Frame frame;
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

static Spans spans(const Rank& rank, double origin_s) {
    Spans found;
    for (const Record& record : rank.records) {
        const double start = record.start_s - origin_s, stop = record.stop_s - origin_s;
        found.json += (found.json.empty() ? "[" : ", [") + std::to_string(rank.communicator.rank) + ", " +
                      quoted(record.kind) + ", " + quoted(record.name) + ", " + seconds(start) + ", " +
                      seconds(stop) + "]";
        found.end_s = std::max(found.end_s, stop);
    }
    return found;
}

static double processor_s() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// The largest resident memory that this process has had.
static long peak_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "VmHWM:") {
            long kilobytes = 0;
            status >> kilobytes;
            return kilobytes * 1024;
        }
    return 0;
}

// Hand back the code that was needed to open the segments and will not be needed again: half of what the libraries
// take. Code is never written, so a page that is wanted after all is read from its file once more.
static void forget_code() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long start, stop;
        char rights[5];
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &stop, rights) != 3) continue;
        if (std::strcmp(rights, "r-xp") == 0 && line.find(" /") != std::string::npos)
            madvise(reinterpret_cast<void*>(start), stop - start, MADV_DONTNEED);
    }
    malloc_trim(0);
}

// What a measurement depends on: versions, cores that this process may use, how they are clocked.
static std::string conditions() {
    utsname machine;
    uname(&machine);
    std::string found = "{\"compiler\": " + quoted(__VERSION__) + ", \"machine\": " + quoted(machine.machine);
    if (!ort::version().empty()) found += ", \"onnxruntime\": " + quoted(ort::version());
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        std::string list;
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &cores)) list += (list.empty() ? "" : ",") + std::to_string(core);
        found += ", \"cores\": " + quoted(list);
    }
    std::string governor;
    if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> governor)
        found += ", \"governor\": " + quoted(governor);
    return found + "}";
}

static std::string usage(const Program& program, const Rank& rank, double busy_s) {
    const ort::Settings& settings = rank.shared.settings;
    return "{\"rank\": " + std::to_string(program.rank) + ", \"device\": " + quoted(program.device) +
           ", \"provider\": " + quoted(settings.provider) + ", \"threads\": " + std::to_string(settings.threads) +
           ", \"peak_bytes\": " + std::to_string(peak_bytes()) + ", \"processor_s\": " + seconds(busy_s) +
           ", \"energy_j\": null, \"conditions\": " + conditions() + "}";
}

// Texts one after the other, each with its length, and back.
static void pack(std::string& all, const std::string& text) {
    const uint64_t length = text.size();
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
}

static std::string unpack(const std::string& all, size_t& at) {
    uint64_t length;
    std::memcpy(&length, &all[at], sizeof length);
    at += sizeof length + length;
    return all.substr(at - length, length);
}

static std::string joined(const std::vector<std::string>& texts) {
    std::string found;
    for (const std::string& text : texts)
        if (!text.empty()) found += (found.empty() ? "" : ", ") + text;
    return found;
}

// The ranks' frames side by side, in the form of runtime/trace.py.
static std::string report(const std::vector<std::string>& usages, const std::vector<std::vector<Spans>>& ranks,
                          bool barrier) {
    std::vector<std::string> frames;
    std::vector<double> ends;
    for (size_t i = 0; i < ranks[0].size(); ++i) {
        std::vector<std::string> texts;
        ends.push_back(0);
        for (const auto& frames_of_rank : ranks) {
            texts.push_back(frames_of_rank[i].json);
            ends.back() = std::max(ends.back(), frames_of_rank[i].end_s);
        }
        frames.push_back("[" + joined(texts) + "]");
    }
    const bool steady = !barrier && ends.size() > 1;
    const std::string period = steady ? seconds((ends.back() - ends[0]) / double(ends.size() - 1)) : "null";
    return "{\"format\": \"cleave-trace\", \"version\": 1, \"source\": \"measured\", \"barrier\": " +
           std::string(barrier ? "true" : "false") + ", \"period_s\": " + period + ", \"ranks\": [" + joined(usages) +
           "], \"frames\": [" + joined(frames) + "]}\n";
}

// Gather everything on rank 0 and write what was asked for.
static void hand_in(Rank& rank, const Options& options, const std::string& own_usage, const std::vector<Spans>& frames,
                    const std::vector<std::string>& kept) {
    rank.shared.activity = "gathering the results";
    std::string mine;
    pack(mine, own_usage);
    for (const Spans& frame : frames) pack(mine, frame.json), pack(mine, seconds(frame.end_s));
    for (size_t i = 0; i < rank.outputs.size(); ++i) {
        pack(mine, rank.outputs[i]->name), pack(mine, rank.outputs[i]->type->name), pack(mine, kept[i]);
        pack(mine, std::string(reinterpret_cast<const char*>(rank.outputs[i]->shape.data()),
                               rank.outputs[i]->shape.size() * sizeof(int64_t)));
    }
    std::vector<std::string> usages;
    std::vector<std::vector<Spans>> spans_of_ranks;
    std::vector<Kept> outputs;
    for (const std::string& all : rank.communicator.gather(mine)) {
        size_t at = 0;
        usages.push_back(unpack(all, at));
        spans_of_ranks.emplace_back();
        for (long i = 0; i < options.frames; ++i) {
            std::string json = unpack(all, at);
            spans_of_ranks.back().push_back({std::move(json), std::stod(unpack(all, at))});
        }
        while (at < all.size()) {
            const std::string name = unpack(all, at);
            const Type& type = type_named(unpack(all, at));
            std::string bytes = unpack(all, at);
            const std::string sizes = unpack(all, at);
            Shape shape{options.frames};
            shape.resize(1 + sizes.size() / sizeof(int64_t));
            std::memcpy(shape.data() + 1, sizes.data(), sizes.size());
            outputs.push_back({name, &type, shape, std::move(bytes)});
        }
    }
    if (rank.communicator.rank != 0) return;
    if (!options.report.empty()) save(options.report, report(usages, spans_of_ranks, options.barrier));
    if (!options.output.empty()) save(options.output, npz(outputs));
}

// Whether all ranks start a frame together. A stream that has begun goes on without.
static bool together(long index, const Options& options) {
    return options.barrier || index == -options.warmup || (index == 0 && !options.stream);
}

// Work on a frame while the next one may come, and leave what it sends on its way.
static void work_ahead(Lane& lane, Lane& following, bool last) {
    lane.rank->post();
    if (!last) following.rank->post();
    lane.frame();
}

void run_frames(const Program& program, Rank& rank, const Options& options) {
    std::optional<Rank> twin;
    std::vector<Lane> lanes{{&rank, program.make(rank)}};
    if (options.stream) twin.emplace(rank.communicator, rank.shared), lanes.push_back({&*twin, program.make(*twin)});
    rank.shared.activity = "reading its input";
    const Frames source(options.input, options.seed, rank.inputs);
    forget_code();
    std::vector<Spans> frames;
    std::vector<std::string> kept(rank.outputs.size());
    double origin = 0, busy = 0;
    for (long index = -options.warmup; index < options.frames; ++index) {
        const size_t turn = size_t(index + options.warmup) % lanes.size();
        Lane& lane = lanes[turn];
        lane.rank->records.clear();
        if (!lane.rank->pending.empty()) lane.rank->finish();  // of the frame before the last, in a stream
        source.fill((index + options.frames * options.warmup) % options.frames, lane.rank->inputs);
        if (together(index, options)) {
            rank.shared.activity = "waiting for the other ranks";
            rank.communicator.barrier();
            origin = now_s();
        }
        const double began = processor_s();
        if (options.stream) work_ahead(lane, lanes[1 - turn], index + 1 == options.frames);
        else lane.frame(), lane.rank->finish();
        if (index < 0) continue;
        busy += processor_s() - began;
        frames.push_back(spans(*lane.rank, origin));
        for (size_t i = 0; i < kept.size() && !options.output.empty(); ++i)
            kept[i].append(lane.rank->outputs[i]->data, lane.rank->outputs[i]->bytes());
    }
    for (Lane& lane : lanes)
        if (!lane.rank->pending.empty()) lane.rank->finish();
    hand_in(rank, options, usage(program, rank, busy), frames, kept);
}
