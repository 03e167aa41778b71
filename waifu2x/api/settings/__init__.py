"""Settings: one table of what can be chosen. Options of commands, the settings file, keyword
arguments, the page's form and its HTTP parameters come from it, or are checked against it."""
