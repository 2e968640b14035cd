# Runs a rank and writes down how it ended: what is killed says nothing, and mpirun does not know why.
# ended.RANK: the exit code (128 and more: of a signal), and "memory" if the kernel killed meanwhile for want of it.
# The rank's own control group counts that; where there are none, the machine does.

kills() {
    while IFS=: read -r _ kind path; do
        case $kind in
            memory) cat "/sys/fs/cgroup/memory$path/memory.oom_control" ;;
            '') cat "/sys/fs/cgroup$path/memory.events" ;;
        esac
    done < /proc/self/cgroup 2> /dev/null | grep '^oom_kill ' || grep '^oom_kill ' /proc/vmstat
}

trap '' USR1 # which asks the rank what it is doing
before=$(kills)
cd "$root" && "$python" "$program" "$@"
code=$?
why=$([ "$before" = "$(kills)" ] && echo other || echo memory)
echo "$code $why" > "$root/ended.$OMPI_COMM_WORLD_RANK"
exit $code
