"""What runs on a host while it is deployed to. Sent over as text at each call, never stored there.

Standard library alone, and nothing newer than Python 3.6 in ``common`` and ``facts``: the first thing they do is to say
which Python there is.
"""
