"""The agent's decisions: from wire bytes, answers of PD and timestamps to registrations and files.

Pure. Callers use only `machine.TerritoryAgent`: its inputs and outputs are the events and commands in `steps`.
"""
