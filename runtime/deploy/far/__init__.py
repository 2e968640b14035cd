"""What runs on a host while it is deployed to. Sent over as text at each call. What others start there (``gate``,
``agent``, ``launch.sh``) is a file as long as a run lasts.

Standard library alone, and nothing newer than Python 3.6: the first thing they do is to say which Python there is.
"""
