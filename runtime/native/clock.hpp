// The clocks of the hosts: what time it was on rank 0, for every moment that another rank has noted.
#pragma once

#include <map>

#include "communicator.hpp"

// One look at another clock: when rank 0 asked and had the answer, by its clock; and in between the other one.
struct Exchange {
    double sent_s = 0, there_s = 0, back_s = 0;
    double offset_s() const { return there_s - (sent_s + back_s) / 2; }
    double uncertainty_s() const { return (back_s - sent_s) / 2; }
};

// A rank's clock, by what was exchanged before the first frame and after the last; in between it drifts evenly.
struct Clock {
    Exchange first, last;
    double aligned(double time_s) const;
    double offset_s() const { return (first.offset_s() + last.offset_s()) / 2; }
    double uncertainty_s() const;
};

// Look at the clock of every other host. All ranks call it together; rank 0 gets the best exchange by the first rank of
// the host, all others nothing.
std::map<int, Exchange> compare(Communicator& communicator);
