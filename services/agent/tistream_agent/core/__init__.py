"""The agent's decisions: wire bytes, PD answers and timestamps in; registrations and files out. Pure.

`machine.TerritoryAgent` is the one entrance: its inputs and outputs are the events and commands of `steps`.
"""
