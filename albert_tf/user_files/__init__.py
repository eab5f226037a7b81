"""Files of users: tables and texts that are read, and tables of answers that are written."""
