"""Measuring a cluster: bundles made by the planner that every bundle is made by, run by the programs that run them all.

What is run is chosen by `design`, run by `measure`, kept in a file by `samples`, and turned into coefficient files and
a platform file that names them by `results`. Nothing runs on a device that does not run there in use.
"""
