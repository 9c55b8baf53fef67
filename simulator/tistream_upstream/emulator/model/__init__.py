"""What emulated TiKV stores and PD answer, on a clock that the caller advances. Pure."""
