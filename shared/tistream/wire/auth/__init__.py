"""The tokens with which services authenticate to each other."""
