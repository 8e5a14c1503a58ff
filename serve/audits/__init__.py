"""What audits of answers say about promises, and what follows."""
