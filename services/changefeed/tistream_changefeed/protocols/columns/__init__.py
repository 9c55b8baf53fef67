"""Decoded columns in the forms that protocols send: numbers as text, times as numbers, bits as bytes. Pure."""
