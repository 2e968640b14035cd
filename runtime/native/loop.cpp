// Frame after frame: start together, fill the inputs, run, keep the outputs, and hand all of it in at the end. First one
// at a time and then in a stream, where both are asked for.
#include <malloc.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>

#include "frames.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "stolen.hpp"

// A set of buffers, and what to do for a frame in it. A stream has two, used in turn.
struct Lane {
    Rank* rank;
    Frame frame;
};

static double processor_s() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
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
}

// The clocks of the hosts, where anybody will look at times.
static std::map<int, Exchange> compared(Rank& rank, const Options& options) {
    rank.shared.activity = "comparing clocks";
    return options.report.empty() ? std::map<int, Exchange>() : compare(rank.communicator);
}

// Start a frame when all are done with the last one. Ranks with an input come last: it then finds the others waiting
// for it, as in use, however long after one another they leave the barrier.
static void meet(Rank& rank) {
    rank.shared.activity = "waiting for the other ranks";
    rank.communicator.barrier();
    rank.pending.push_back(rank.communicator.arrive());
    if (!rank.inputs.empty()) rank.wait();
}

static void fill(const Frames& source, long index, Rank& rank) {
    std::string names;
    for (const Buffer* buffer : rank.inputs) names += (names.empty() ? "" : ", ") + buffer->name;
    if (!rank.inputs.empty()) rank.doing(INPUT, names, [&] { source.fill(index, rank.inputs); });
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

static void finish(std::vector<Lane>& lanes) {
    for (Lane& lane : lanes)
        if (!lane.rank->pending.empty()) lane.rank->finish();
}

static Account run_all(std::vector<Lane>& lanes, const Frames& source, const Options& options) {
    Account account;
    account.outputs.resize(lanes[0].rank->outputs.size());
    std::optional<Stolen> others;
    for (long index = -options.warmup; index < options.frames; ++index) {
        const size_t turn = size_t(index + options.warmup) % lanes.size();
        Lane& lane = lanes[turn];
        lane.rank->records.clear();
        if (!lane.rank->pending.empty()) lane.rank->finish();  // of the frame before the last, in a stream
        if (index == 0) others.emplace();
        if (together(index, options)) meet(*lane.rank);
        fill(source, (index + options.frames * options.warmup) % options.frames, *lane.rank);
        const double began = processor_s();
        if (options.stream) work_ahead(lane, lanes[1 - turn], index + 1 == options.frames);
        else lane.frame(), lane.rank->finish();
        if (index < 0) continue;
        account.processor_s += processor_s() - began;
        account.frames.emplace_back();
        if (!options.report.empty()) account.frames.back() = lane.rank->records;  // else nobody looks
        for (size_t i = 0; i < account.outputs.size() && !options.output.empty(); ++i)
            account.outputs[i].append(lane.rank->outputs[i]->data, lane.rank->outputs[i]->bytes());
    }
    finish(lanes);
    if (others) account.stolen = others->part();
    return account;
}

// Frames of one pace, in each of the lanes in turn; returns their trace, on rank 0 and if it is wanted.
static std::string pass(const Program& program, std::vector<Lane>& lanes, const Frames& source, const Options& options) {
    Rank& rank = *lanes[0].rank;
    const std::map<int, Exchange> first = compared(rank, options);
    Account account;
    Footprint::growing(rank.shared.footprint.frames, [&] { account = run_all(lanes, source, options); });
    std::map<int, Clock> clocks;
    for (const auto& [other, last] : compared(rank, options)) clocks[other] = {first.at(other), last};
    return hand_in(program, rank, options, account, clocks);
}

void run_frames(const Program& program, Rank& rank, const Options& options) {
    Rank twin(rank.communicator, rank.shared);
    std::vector<Lane> lanes{{&rank, program.make(rank)}};
    Footprint& footprint = rank.shared.footprint;
    std::optional<Frames> source;
    std::string traces;
    for (const Options& now : options.passes()) {
        if (now.stream) lanes.push_back({&twin, program.make(twin)});
        if (!source) {
            rank.shared.activity = "reading its input";
            Footprint::growing(footprint.input, [&] { source.emplace(now.input, now.seed, rank.inputs, now.frames); });
            Footprint::growing(footprint.base, forget_code);
            Footprint::growing(footprint.segments, [] { malloc_trim(0); });  // what opening them has left
        }
        traces += pass(program, lanes, *source, now);
    }
    if (!traces.empty()) save(options.report, traces);
}
