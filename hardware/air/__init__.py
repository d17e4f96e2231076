"""The simulated air: links, front ends, thermal noise. One, for every backend that simulates."""
