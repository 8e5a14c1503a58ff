"""What a policy would do: its exits tried on what the exits said of recorded and audited texts."""
