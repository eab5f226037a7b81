"""Programs around the library: an example server, checks of exports, plots and tables of the documentation."""
