"""The model of an emulated cluster: it computes the answers of TiKV stores and of PD. The caller advances the clock.
Pure."""
