"""The wire formats that the server speaks: one package for each, none of which knows another."""
