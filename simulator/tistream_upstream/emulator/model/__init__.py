"""The model of emulated TiKV stores and of PD: computes their answers, on a clock that the caller advances. Pure."""
