"""The event simulator: programs of ranks as events, one frame alone and a stream, and what bounds them."""
