"""A page to try a model: that of the server, and one that works alone, without a server and a network."""
