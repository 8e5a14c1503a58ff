"""Conversion of fp32 segments to int8 and fp16."""
