#include "program.hpp"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

static const char* const HELP =
    "Run this CNN on the ranks that mpirun started.\n"
    "  --frames=N      frames to measure (1)        --warmup=W   frames before them (0)\n"
    "  --barrier       start every frame together   --stream     work on one frame while others are on their way\n"
    "  both of them    first frames that start together, then a stream\n"
    "  --input=FILE.npz   frames, an array for each input of the CNN; without it random ones, of --seed=N\n"
    "  --output=FILE.npz  write the outputs here    --report=FILE.json  write times and memory here\n"
    "  --threads=N, --provider=NAME  instead of the plan's, on every rank\n"
    "  --bundle=FOLDER    where the segments are (beside this program)\n";

static long number(const std::string& option, const std::string& text, long least) {
    char* end;
    const long found = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || found < least)
        throw std::runtime_error(option + " " + text + ": must be " + std::to_string(least) + " or more");
    return found;
}

static std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    const std::string file(path, length > 0 ? size_t(length) : 0);
    return file.substr(0, file.rfind('/'));
}

Options parse(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        std::string word = words[i], value;
        if (word == "--barrier" || word == "--stream") {
            (word == "--barrier" ? options.barrier : options.stream) = true;
            continue;
        }
        const size_t equals = word.find('=');
        if (equals != std::string::npos) value = word.substr(equals + 1), word.resize(equals);
        else if (++i < count) value = words[i];
        else throw std::runtime_error("option " + word + " is unknown or needs a value");
        if (word == "--frames") options.frames = number(word, value, 1);
        else if (word == "--warmup") options.warmup = number(word, value, 0);
        else if (word == "--threads") options.threads = number(word, value, 1);
        else if (word == "--seed") options.seed = number(word, value, 0);
        else if (word == "--input") options.input = value;
        else if (word == "--output") options.output = value;
        else if (word == "--report") options.report = value;
        else if (word == "--provider") options.provider = value;
        else if (word == "--bundle") options.bundle = value;
        else throw std::runtime_error("there is no option " + word);
    }
    if (options.bundle.empty()) options.bundle = own_folder();
    return options;
}

std::vector<Options> Options::passes() const {
    if (!barrier || !stream) return {*this};
    std::vector<Options> found{*this, *this};
    found[0].stream = found[1].barrier = false;
    return found;
}

static Note who(""), activity("starting");  // which rank this is, and what it is doing

static void one_line(char* text) {
    for (; *text; ++text)
        if (*text == '\n' || *text == '\r') *text = ' ';
}

// A signal says that time is up. Whatever the rank is in the midst of, this asks for no memory and takes no lock.
static void tell(int) {
    const int before = errno;
    char line[3 * Note::SIZE] = "";
    for (const char* part : {PREFIX, who.text(), " was not done (", activity.text(), ")"}) std::strcat(line, part);
    one_line(line);
    std::strcat(line, "\n");
    (void)!write(STDERR_FILENO, line, std::strlen(line));
    errno = before;
}

[[noreturn]] static void give_up(Communicator& communicator, const std::string& reason) {
    std::string line = std::string(who.text()) + " failed (" + activity.text() + "): " + reason;
    one_line(line.data());
    communicator.abort(line);
}

int run(const std::vector<Program>& programs, int count, char** words) {
    for (int i = 1; i < count; ++i)
        if (std::string(words[i]) == "--help") return std::fputs(HELP, stdout), 0;
    std::signal(SIGUSR1, SIG_IGN);  // which would end a rank that cannot say yet which it is
    Communicator communicator;
    const std::string ranks = std::to_string(programs.size());
    who = "rank " + std::to_string(communicator.rank) + " of " + ranks;
    Shared shared{activity};
    try {
        if (size_t(communicator.size) != programs.size())
            throw std::runtime_error("MPI says rank " + std::to_string(communicator.rank) + " of " +
                                     std::to_string(communicator.size) + ": start it with -n " + ranks +
                                     " and the mpirun that it was compiled with");
        const Program& program = programs[size_t(communicator.rank)];
        who = std::string(who.text()) + " on " + program.device;
        std::signal(SIGUSR1, tell);
        const Options options = parse(count, words);
        shared.folder = options.bundle;
        shared.settings.provider = options.provider.empty() ? program.provider : options.provider;
        shared.settings.threads = options.threads ? int(options.threads) : program.threads;
        shared.settings.arena = program.arena;
        Rank rank(communicator, shared);
        run_frames(program, rank, options);
    } catch (const std::bad_alloc&) {
        give_up(communicator, "there is not enough memory");
    } catch (const std::exception& error) {
        give_up(communicator, error.what());
    }
    return 0;
}
