"""One served model behind one asynchronous call."""
