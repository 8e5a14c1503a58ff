"""What clients see while a server is broken, changed or overloaded."""
