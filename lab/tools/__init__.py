"""Programs for development: checks of exports, plots and tables of the documentation, compilation for accelerators."""
