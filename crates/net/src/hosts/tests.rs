//! Frames and names of interfaces; the network itself is tested from outside.
