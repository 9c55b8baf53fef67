"""Messages of PD's and TiKV's gRPC interfaces that TiStream uses: `scripts/tikv-protos` compiles the `.proto` files."""
