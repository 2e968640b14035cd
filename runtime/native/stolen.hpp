// Time that the processor of a virtual machine works for other machines: what is measured then takes longer.
#pragma once

#include <optional>

// Which part of its cores' time this process could not have since this was made.
class Stolen {
   public:
    Stolen();
    std::optional<double> part() const;  // 0 to 1; none where the system does not tell

   private:
    double began_s;
    std::optional<double> before_s;
};
