"""The gRPC messages of PD and TiKV that TiStream uses. `scripts/tikv-protos` compiles them from `.proto` files."""
