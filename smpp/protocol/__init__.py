"""SMPP 3.4 without a socket: PDUs, codec, framer, window, timers and the session that both sides run."""
