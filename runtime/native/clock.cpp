#include "clock.hpp"

#include <algorithm>
#include <set>

// As in clock.py of the Python programs, which says why.
constexpr int EXCHANGES = 100, TAG = 0;

double Clock::aligned(double time_s) const {
    const double apart_s = last.there_s - first.there_s;
    const double share = apart_s != 0 ? (time_s - first.there_s) / apart_s : 0;
    return time_s - first.offset_s() - share * (last.offset_s() - first.offset_s());
}

double Clock::uncertainty_s() const { return std::max(first.uncertainty_s(), last.uncertainty_s()); }

static Exchange ask(Communicator& communicator, int rank) {
    char nothing[sizeof(double)] = {};
    Exchange best, found;
    Request answer = communicator.receive(reinterpret_cast<char*>(&found.there_s), sizeof(double), rank, TAG);
    Request question = communicator.send(nothing, sizeof nothing, rank, TAG);
    for (int turn = 0; turn < EXCHANGES; ++turn) {
        answer.start();
        found.sent_s = now_s();
        question.start();
        answer.wait();
        found.back_s = now_s();
        question.wait();
        if (turn == 0 || found.uncertainty_s() < best.uncertainty_s()) best = found;
    }
    return best;
}

static void answer(Communicator& communicator) {
    char nothing[sizeof(double)];
    double there_s;
    Request question = communicator.receive(nothing, sizeof nothing, 0, TAG);
    Request answer = communicator.send(reinterpret_cast<const char*>(&there_s), sizeof there_s, 0, TAG);
    for (int turn = 0; turn < EXCHANGES; ++turn) {
        question.start();
        question.wait();
        there_s = now_s();
        answer.start();
        answer.wait();
    }
}

std::map<int, Exchange> compare(Communicator& communicator) {
    std::set<int> first_ranks(communicator.hosts.begin(), communicator.hosts.end());
    first_ranks.erase(0);
    if (!first_ranks.empty()) communicator.barrier();
    if (first_ranks.count(communicator.rank)) answer(communicator);
    std::map<int, Exchange> found;
    if (communicator.rank == 0)
        for (int rank : first_ranks) found[rank] = ask(communicator, rank);
    return found;
}
