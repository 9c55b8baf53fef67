"""The decisions of the agent. Received bytes, answers of PD and the time go in; requests to PD and TiKV and files to
write come out.

Pure. Callers use only `machine.TerritoryAgent`; the module `steps` defines its inputs (events) and outputs (commands).
"""
