"""Encodes change files, the input of TiStream (the push contract, design.md 2), for programs that push."""
