#include "communicator.hpp"

#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "quota.hpp"

// The same figures, for the same reasons, as in communicator.py and mpi.py of the Python programs.
constexpr double SPIN_S = 100e-6, SHARE = 1.0 / 32, SHORTEST_S = 20e-6, LONGEST_S = 1e-3, NEAR_S = 100e-6, LOOKS = 4;
constexpr size_t UNAIDED_BYTES = 1 << 19;
constexpr double POKE_S = 500e-6, POKE_SHARE = 1.0 / 4;
constexpr auto LAST_WORDS = std::chrono::milliseconds(100);
constexpr int RESULTS = 0;  // tag of what is gathered, after all frames

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_s() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

// Have Linux end the short sleeps of this thread on time: by default they last 50 us longer.
static void sleep_sharply() {
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1);
#endif
}

static void check(int code) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    throw std::runtime_error("MPI: " + std::string(text, size_t(length)));
}

static int count(size_t bytes) {
    if (bytes > INT_MAX) throw std::runtime_error("a message of 2 GB or more is too long for MPI");
    return int(bytes);
}

template <typename Test>
static double wait_for(Test test, double last_s) {
    static const double share = core_share(), near = share == 1 ? NEAR_S : 0;
    const double begin = now_s();
    double waited = 0, looked = thread_s();
    while (!test()) {
        waited = now_s() - begin;
        const double off = std::abs(waited - last_s);
        if (waited <= SPIN_S * share || off <= near) continue;
        const double before = std::exchange(looked, thread_s());
        const double frugal = (looked - before) * LOOKS * (1 / share - 1);
        std::this_thread::sleep_for(
            std::chrono::duration<double>(std::min(std::max({off * SHARE, SHORTEST_S, frugal}), LONGEST_S)));
    }
    return waited;
}

void Request::start() {
    check(MPI_Start(&request_));
    if (coming_) ++*coming_;
}

bool Request::test() {
    int done = 0, came = 0;
    MPI_Status status;
    // Over TCP Open MPI takes a message off the wire and says so only the next time, which would be after another sleep.
    for (int look = 0; look < 2 && !done; ++look) check(MPI_Test(&request_, &done, &status));
    if (done && coming_) --*coming_;
    if (!done || !expected_) return done;
    check(MPI_Get_count(&status, MPI_BYTE, &came));
    if (size_t(came) != expected_)
        throw std::runtime_error("expected a message of " + std::to_string(expected_) + " bytes, got " +
                                 std::to_string(came));
    return true;
}

double Request::wait(double last_s) {
    return wait_for([this] { return test(); }, last_s);
}

Communicator::Communicator() {
    int level;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    hosts = first_of_each_host();
    sleep_sharply();
    const bool several = std::any_of(hosts.begin(), hosts.end(), [](int first) { return first != 0; });
    if (level == MPI_THREAD_MULTIPLE && several) helper_ = std::thread(&Communicator::look_after_messages, this);
}

std::vector<int> Communicator::first_of_each_host() const {
    MPI_Comm here;
    int first;
    std::vector<int> found(static_cast<size_t>(size));
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    check(MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, here));
    check(MPI_Comm_free(&here));
    check(MPI_Allgather(&first, 1, MPI_INT, found.data(), 1, MPI_INT, MPI_COMM_WORLD));
    return found;
}

Communicator::~Communicator() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ending_ = begun_ = true;
    }
    wake_.notify_one();
    if (helper_.joinable()) helper_.join();
    MPI_Finalize();
}

Request Communicator::receive(char* data, size_t bytes, int source, int tag) {
    MPI_Request request;
    check(MPI_Recv_init(data, count(bytes), MPI_BYTE, source, tag, MPI_COMM_WORLD, &request));
    return {request, bytes, helped(source, bytes) ? &coming_ : nullptr};
}

Request Communicator::send(const char* data, size_t bytes, int dest, int tag) {
    MPI_Request request;
    // Synchronous: a rank with little to do would else fill another's memory with frames to come.
    check(MPI_Ssend_init(data, count(bytes), MPI_BYTE, dest, tag, MPI_COMM_WORLD, &request));
    if (helped(dest, bytes)) leaving_.push_back({request, 0});
    return {request, 0};
}

Request Communicator::arrive() {
    MPI_Request request;
    check(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    return {request, 0};
}

std::vector<std::string> Communicator::gather(const std::string& bytes) {
    barrier();
    if (rank != 0) {
        check(MPI_Send(bytes.data(), count(bytes.size()), MPI_BYTE, 0, RESULTS, MPI_COMM_WORLD));
        return {};
    }
    std::vector<std::string> found{bytes};
    for (int source = 1; source < size; ++source) {
        MPI_Status status;
        int length;
        check(MPI_Probe(source, RESULTS, MPI_COMM_WORLD, &status));
        check(MPI_Get_count(&status, MPI_BYTE, &length));
        found.emplace_back(size_t(length), '\0');
        check(MPI_Recv(&found.back()[0], length, MPI_BYTE, source, RESULTS, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return found;
}

void Communicator::progress(bool active) {
    auto moves = [](Request& request) { return !request.test(); };
    if (!active) look(false);
    else if (coming_ || std::any_of(leaving_.begin(), leaving_.end(), moves)) look(true);
}

// Within a host who waits for a message copies it.
bool Communicator::helped(int other, size_t bytes) const {
    return bytes > UNAIDED_BYTES && hosts[size_t(other)] != hosts[size_t(rank)];
}

void Communicator::look(bool active) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        computing_ = active;
        begun_ |= active;
    }
    if (active) wake_.notify_one();
}

// MPI moves messages only while it is called, and only if it does not find what it is asked for: nobody sends to itself.
void Communicator::look_after_messages() {
    const auto begun = [this] { return begun_; };
    std::unique_lock<std::mutex> lock(mutex_);
    for (wake_.wait(lock, begun); !ending_; wake_.wait(lock, begun)) {
        begun_ = false;
        const double start_s = now_s();
        double pause_s = POKE_S;
        while (computing_ && !wake_.wait_for(lock, std::chrono::duration<double>(pause_s), begun)) {
            lock.unlock();
            int flag;
            MPI_Iprobe(rank, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            lock.lock();
            pause_s = std::max(POKE_S, (now_s() - start_s) * POKE_SHARE);
        }
    }
}

void Communicator::abort(const std::string& message) {
    const std::string line = PREFIX + message + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());  // at once, lest another rank's line come between
    std::this_thread::sleep_for(LAST_WORDS);                // until mpirun has read it
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}
