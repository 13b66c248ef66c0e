// Compiled once for each precompiled header, to own it.
