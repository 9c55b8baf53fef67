"""Converts decoded columns to the forms that protocols send: numbers to text, times to numbers, bits to bytes. Pure."""
