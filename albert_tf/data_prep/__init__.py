"""Programs that turn files into files: text and data sets into records."""
