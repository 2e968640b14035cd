// How much of a core this process may use: control groups hold a container, say, to a share.
#pragma once

// As quota.py of the Python programs: above 0, and 1 where that is a core or more, or nothing is told.
double core_share();
