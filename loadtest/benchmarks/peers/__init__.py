"""The other servers: one file each, as a person would write it, with pinned requirements."""
