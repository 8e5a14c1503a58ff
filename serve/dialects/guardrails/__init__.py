"""Guardrails: the detectors of FMS and TrustyAI, and LiteLLM's generic guardrail."""
