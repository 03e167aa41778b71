"""Steps: what a program is made of, a module for each kind."""
