"""A cluster in a box: several hosts on one Linux machine, with SSH, limited links, slower processors, less memory.

What is to be made is plain data and text (`spec`, `state`, `network`, `limits`, `host`, `access`), and can be looked
at without root. `needs` asks whether this machine can do it, `machine` does it, `lifecycle` puts it all in order.
`cores` runs beside the hosts, so that they are held to their shares and do not fall asleep.

All processes of a testbed are in its cgroups, and all its namespaces, mounts and network interfaces live and die with
these processes. So ending what is in the cgroups takes everything away, whatever state a crash has left.
"""
