"""Programs that prepare data: they turn text and data sets into records."""
