"""Speed and memory, compared with other libraries and with the machine's limits: `make bench`, README.md."""
